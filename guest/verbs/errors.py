"""The errors that verbs raise, whichever provider is below."""

from __future__ import annotations

from bluebridge.guest.errors import DeviceError


class VerbsError(DeviceError):
    """A verb failed; the text says which and why."""


class DeviceLost(VerbsError):
    """The device is gone, or has failed for good: nothing can be asked of it any more."""
