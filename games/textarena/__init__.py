"""Games with the ids and rules of TextArena, one file per game."""
