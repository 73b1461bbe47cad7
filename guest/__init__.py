"""What runs in the guests."""

from bluebridge.guest import compiled

compiled.install()
