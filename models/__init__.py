"""Decoder, families, Hugging Face weights in and out, sharding, chat rendering."""
