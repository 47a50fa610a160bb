"""Simple and strong play by programs, one module for a few games."""
