"""The hardware side of bluebridge; this file imports nothing so that guests can import `device.layout`."""
