"""The errors that every driver in the guests may raise."""

from __future__ import annotations


class DeviceError(Exception):
    """A device, or the way to it, did not do what was asked; the text is one line."""
