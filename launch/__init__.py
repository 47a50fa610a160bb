"""Command line: flags, configuration, recipe."""
