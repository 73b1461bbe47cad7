"""Queue pairs as their contexts describe them."""
