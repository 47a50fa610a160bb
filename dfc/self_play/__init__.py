"""Language Self-Play's own matters: prompts of its roles, self-reward, hygiene and watch of queries, task families."""
