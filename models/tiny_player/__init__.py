"""The model in the box: weights, tokenizer and configuration in the Hugging Face layout."""
