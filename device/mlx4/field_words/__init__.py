"""The fields that the adapter refuses or ignores, as data that `make docs` shows as a page."""
