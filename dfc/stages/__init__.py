"""What methods are made of, and recipes of their own: collect, build rows, train on rows, evaluate."""
