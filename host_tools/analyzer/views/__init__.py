"""The views of `bluebridge log`: a module with a `VIEW` for each, listed in `table`."""
