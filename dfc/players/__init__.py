"""Players of seats that no engine plays: an endpoint or a person (`remote`); scripted ones are in `dfc.games`."""
