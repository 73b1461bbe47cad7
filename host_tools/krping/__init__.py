"""The command `bluebridge krping`."""
