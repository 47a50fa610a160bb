"""The bundled model: weights, tokenizer and configuration in the Hugging Face layout."""
