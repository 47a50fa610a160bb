"""Matches, their statistics and the report."""
