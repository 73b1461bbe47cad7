"""Faults of links: rules that drop, delay, duplicate or hold messages."""
