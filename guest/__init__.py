"""Drivers, verbs and protocols in Python, and the programs that run in the guests."""

from bluebridge.guest import compiled

compiled.install()
