"""What an answer to a query is worth: exact checks, programs' tests, reward models and judges."""
