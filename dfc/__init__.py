"""dfc: open-weights chat models become better agents by playing language games (JAX/Flax)."""

__version__ = "0.2.0.dev0"
