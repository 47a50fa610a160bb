"""Games played on the inference engine: one match, many at once, and who sits in their seats."""
