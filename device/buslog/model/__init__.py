"""The time model: what the transactions in a bus log would take on real machines."""

from bluebridge.device.buslog.model.model import Model, load
from bluebridge.device.buslog.model.profile import Profile, ProfileError, built_in

__all__ = ["Model", "Profile", "ProfileError", "built_in", "load"]
