"""The headers of frames, and what an adapter does to frames on their way."""
