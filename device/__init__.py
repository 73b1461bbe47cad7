"""The hardware side of bluebridge; imports nothing, so guests can import `layout` alone."""
