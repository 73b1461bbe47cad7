"""States of a client's path, by the kernel's names (rtrs-clt.h: rtrs_clt_state), and its phases."""

from __future__ import annotations

from enum import IntEnum, StrEnum


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
    """The path is removed from its session."""


class Phase(IntEnum):
    """The step that a path is at while it connects or drains."""

    IDLE = 0
    OPENING = 1
    """Its next connection is being made."""
    INFO = 2
    """INFO_REQ is sent, INFO_RSP not yet there."""
    RUNNING = 3
    DRAINING = 4
    GRACE = 5
    """All is drained: the peer's word that it knows."""
    DELAY = 6
    BACKOFF = 7
