"""Playpen (arXiv 2504.08590)."""
