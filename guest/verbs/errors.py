"""The errors that verbs raise, whichever provider is below."""

from __future__ import annotations

from bluebridge.guest.errors import DeviceError


class VerbsError(DeviceError):
    """A verb failed; the text names the verb and the reason."""


class DeviceLost(VerbsError):
    """The device was removed or failed for good, so every further request to it fails."""
