"""What the bridge's driver raises."""

from __future__ import annotations

from bluebridge.guest.errors import DeviceError


class NtbError(DeviceError):
    """The bridge, or its peer, does not do what was asked."""


class NtbTimeout(NtbError):
    """What was waited for did not happen in time."""
