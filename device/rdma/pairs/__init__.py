"""A queue pair without its engines, and the interfaces to its engines and to its face."""
