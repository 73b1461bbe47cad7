"""One queue pair without its engines, and what it asks of them and of its face."""
