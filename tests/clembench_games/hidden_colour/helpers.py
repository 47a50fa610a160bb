"""A module beside the master, called like one that any other game may have."""

COLOURS = ("red", "green", "blue")
