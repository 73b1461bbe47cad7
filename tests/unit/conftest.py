"""Settings of all unit tests."""

from __future__ import annotations

from hypothesis import settings

# Machines with two cores run virtual machines beside these tests: time says nothing here.
settings.register_profile("bluebridge", deadline=None)
settings.load_profile("bluebridge")
