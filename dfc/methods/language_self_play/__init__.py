"""Language Self-Play (arXiv 2509.07414): one model writes queries, answers them and learns from both."""
