"""Benchmarks: `python -m bluebridge.host_tools.campaigns.bench`, called by `make bench`."""
