"""Worlds of one seed: engines under a virtual clock, and what befalls them until all must be well.

`python -m tests.world NAME --seeds 10000` runs many of a kind, `--seed N` runs one again.
"""
