"""Scripted players and simulators: simple and strong play for every game."""
