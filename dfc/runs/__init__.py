"""A run on disk and in the terminal: its folder, checkpoints, metrics, progress, stages, costs, stops."""
