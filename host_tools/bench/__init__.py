"""Benchmarks: `python -m bluebridge.host_tools.bench`, called by `make bench`."""
