"""Benchmarks: `python -m tests.campaigns.bench`, called by `make bench`."""
