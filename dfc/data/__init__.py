"""Transcripts to data sets."""
