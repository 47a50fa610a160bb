"""Whoever sits in a seat."""
