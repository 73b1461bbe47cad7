"""The errors that every driver in the guests may raise."""

from __future__ import annotations


class DeviceError(Exception):
    """A device, or the way to it, did not do what was asked; the text is one line."""


class VerbsError(DeviceError):
    """A verb failed; the text names the verb and the reason."""


class DeviceLost(VerbsError):
    """The device was removed or failed for good, so every further request to it fails."""
