"""The errors that the bridge's driver raises."""

from __future__ import annotations

from bluebridge.guest.errors import DeviceError


class NtbError(DeviceError):
    """The bridge or its peer did not do what was asked."""


class NtbTimeout(NtbError):
    """The bridge or its peer did not do within the time limit what a call waited for."""
