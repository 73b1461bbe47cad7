"""Objects that commands make, and their numbers."""
