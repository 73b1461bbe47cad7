"""Wireshark's exported PDUs: tags that name a dissector, in front of its data."""

from __future__ import annotations

from struct import pack

from bluebridge.device.layout.pcie.pseudo_header import TAG_DISSECTOR_NAME, TAG_END


def tags(dissector: str) -> bytes:
    """Return the tags in front of data that `dissector` is to decode."""
    return _tag(TAG_DISSECTOR_NAME, dissector.encode()) + _tag(TAG_END, b"")


def _tag(number: int, value: bytes) -> bytes:
    value += bytes(-len(value) & 3)
    return pack(">HH", number, len(value)) + value
