"""The time model: estimates how long the transactions of a bus log take on real machines."""

from bluebridge.host_tools.analyzer.model.model import Model, Profile, ProfileError, built_in, load

__all__ = ["Model", "Profile", "ProfileError", "built_in", "load"]
