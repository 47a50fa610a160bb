"""Rewards of answers to queries: exact checks, programs' tests, reward models and judges."""
