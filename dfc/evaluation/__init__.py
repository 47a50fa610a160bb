"""Matches, tasks and tournaments, and the statistics of what came out."""
