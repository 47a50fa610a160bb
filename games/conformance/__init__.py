"""What every game must keep; `python -m dfc.games --check` runs all of it."""
