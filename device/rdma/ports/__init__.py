"""Ports: link, addresses, headers, counters."""
