"""Child processes of the host tools: their start, their supervision and their end."""
