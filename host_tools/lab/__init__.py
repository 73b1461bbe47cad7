"""A pair of guests with its device server."""
