"""What an adapter is and can, and why it refuses a command."""
