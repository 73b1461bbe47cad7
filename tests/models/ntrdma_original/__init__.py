"""A peer of NTRDMA version 0.1, written from its description and not from this project's engine."""
