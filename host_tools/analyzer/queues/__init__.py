"""Queue pairs and rings along a log: what state each is in at a moment."""
