"""What was played: trajectories, their files, collections of them, games on record."""
