"""Tokens in, tokens out: many conversations at once on one model, each with a resident cache. Knows no game."""
