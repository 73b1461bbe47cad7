"""The time model: estimates how long the transactions of a bus log take on real machines."""

from bluebridge.device.buslog.model.model import Model, load
from bluebridge.device.buslog.model.profile import Profile, ProfileError, built_in

__all__ = ["Model", "Profile", "ProfileError", "built_in", "load"]
