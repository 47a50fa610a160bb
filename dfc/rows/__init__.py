"""What is trained on: rows of conversations, dialogues and pairs, read, chosen and built."""
