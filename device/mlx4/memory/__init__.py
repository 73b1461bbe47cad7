"""Whose bytes are where: ICM, regions, windows, scatter and gather lists, transfers."""
