"""The hardware side of bluebridge; imports nothing, so that guests can import `device.layout`."""
