"""Sides of a pair that programs of this machine play, each in the place of a guest."""
