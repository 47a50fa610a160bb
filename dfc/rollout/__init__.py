"""Games played on the inference engine: one match, many at once, and the players of their seats."""
