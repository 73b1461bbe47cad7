"""Event, completion, shared receive queues and queue pairs."""
