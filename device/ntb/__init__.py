"""Non-transparent bridges: a link, windows, and personalities that drivers know."""
