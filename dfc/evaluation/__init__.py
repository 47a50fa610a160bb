"""Matches, tasks and tournaments, and the statistics of their results."""
