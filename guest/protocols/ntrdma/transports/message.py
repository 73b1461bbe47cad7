"""The store by which a peer interrupts this side: an entry of the bridge's own MSI-X table."""

from __future__ import annotations

from bluebridge.guest.drivers.bus.interface import Function
from bluebridge.guest.protocols.ntrdma.engine.transport import Message

_CAPABILITIES = 0x34
_MSIX = 0x11
_TABLE = 4
_ENTRY_BYTES = 16
_INTERRUPTS = range(0xFEE00000, 0xFEF00000)


def message_of(function: Function, vector: int) -> Message | None:
    """Address and data of a vector's message; None when the table does not show them."""
    where = _capability(function, _MSIX)
    if not where:
        return None
    table = function.load_config(where + _TABLE, 4)
    bar, offset = table & 7, (table & ~7) + vector * _ENTRY_BYTES
    try:
        address = function.load(bar, offset, 4) | function.load(bar, offset + 4, 4) << 32
        data = function.load(bar, offset + 8, 4)
    except (KeyError, OSError, ValueError):
        return None
    return Message(address, data) if address in _INTERRUPTS else None


def _capability(function: Function, wanted: int) -> int:
    """Where a capability is in config space; 0 when there is none."""
    where = function.load_config(_CAPABILITIES, 1)
    for _ in range(48):
        if not where:
            return 0
        if function.load_config(where, 1) == wanted:
            return where
        where = function.load_config(where + 1, 1)
    return 0
