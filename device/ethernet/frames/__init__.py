"""What stands in frames, and what an adapter does to them on their way."""
