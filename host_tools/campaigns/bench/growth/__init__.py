"""Costs at several sizes: what they grow with, and by which exponent."""
