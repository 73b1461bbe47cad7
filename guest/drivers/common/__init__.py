"""What the user-space drivers of all adapters have in common."""
