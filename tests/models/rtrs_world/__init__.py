"""Both engines of RTRS, joined by a modelled network with a virtual clock and a seed.

`python -m tests.models.rtrs_world --seeds 10000` runs that many worlds; `--seed N` runs one again.
"""
