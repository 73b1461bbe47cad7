"""The data on what the adapter does with each field, which `make docs` shows as a page."""
