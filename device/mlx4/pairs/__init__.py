"""Queue pairs of the adapter, as their contexts describe them."""
