"""Memory protection and access: regions, windows, scatter and gather lists, transfers."""
