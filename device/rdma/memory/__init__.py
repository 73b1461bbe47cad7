"""Whose bytes are where: regions, windows, scatter and gather lists, transfers."""
