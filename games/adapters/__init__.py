"""Games of other packages behind this package's protocol; each needs its package installed."""
