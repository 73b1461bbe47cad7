"""Ports: link, addresses, headers, groups, counters."""
