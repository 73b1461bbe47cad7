"""Benchmarks: `python -m host_tools.bench`, called by `make bench`."""
