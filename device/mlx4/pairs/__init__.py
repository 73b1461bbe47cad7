"""One queue pair without its engines."""
