"""Makes small models by imitation of scripted players: the bundled one, and one that Language Self-Play starts from."""
