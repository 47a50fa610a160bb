"""dfc: open-weights chat models become better agents by playing language games (JAX/Flax)."""

__version__ = "0.1.0"
