"""Failures that people asked for in public threads, each in a file to copy (docs/atlas.md)."""
