"""Ports of an adapter: link, addresses, headers, counters."""
