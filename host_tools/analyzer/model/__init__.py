"""The time model: estimates how long the transactions of a bus log take on real machines."""

from bluebridge.host_tools.analyzer.model.model import Model, load
from bluebridge.host_tools.analyzer.model.profile import Profile, ProfileError, built_in

__all__ = ["Model", "Profile", "ProfileError", "built_in", "load"]
