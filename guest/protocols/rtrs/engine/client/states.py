"""States of a client's path, by the kernel's names (rtrs-clt.h: rtrs_clt_state), and its phases."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class State(StrEnum):
    """The kernel's states of a path.

    The file `state` in sysfs has connected, and disconnected for all others.
    """

    CONNECTING = "connecting"
    CONNECTING_ERR = "connecting_err"
    """Connecting has failed, and connections are being given back."""
    RECONNECTING = "reconnecting"
    """The path is broken: connections are being given back, or the next attempt waits."""
    CONNECTED = "connected"
    CLOSING = "closing"
    CLOSED = "closed"
    DEAD = "dead"
    """The path is removed from its session."""


class Phase(IntEnum):
    """The step that a path is at while it connects or drains."""

    IDLE = 0
    OPENING = 1
    """The path's next connection is being made."""
    INFO = 2
    """INFO_REQ is sent and INFO_RSP has not come yet."""
    RUNNING = 3
    DRAINING = 4
    GRACE = 5
    """All connections are drained; the path waits for the peer to know it."""
    DELAY = 6
    BACKOFF = 7
