"""Dialogue games for a team of two or one player with a game master, as in clembench and Playpen."""
