"""Native games: rules only, no JAX, nothing else of dfc."""
