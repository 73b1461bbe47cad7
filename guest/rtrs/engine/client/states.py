"""States of a client's path, by the kernel's names."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """`state` in sysfs shows connected, and disconnected for all others."""

    CONNECTING = "connecting"
    CONNECTING_ERR = "connecting_err"
    """Connecting has failed; connections are being given back."""
    RECONNECTING = "reconnecting"
    """Broken: connections are being given back, or the next attempt waits for its time."""
    CONNECTED = "connected"
    CLOSING = "closing"
    CLOSED = "closed"
    DEAD = "dead"
    """Removed from its session."""
