"""What an adapter is, and what it was told."""
