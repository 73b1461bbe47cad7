"""`bluebridge krping`."""
