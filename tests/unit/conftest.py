"""Settings of all unit tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Machines with two cores run virtual machines beside these tests: time says nothing here.
settings.register_profile("bluebridge", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bluebridge")
