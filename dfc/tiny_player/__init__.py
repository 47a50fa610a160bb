"""Makes the bundled model: transcripts of scripted players, a tokenizer, a small decoder trained on both."""
