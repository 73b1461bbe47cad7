"""States of a server's path, by the kernel's names (rtrs-srv.h: rtrs_srv_state)."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The kernel's states of a server's path."""

    CONNECTING = "connecting"
    """Connections are being made, until INFO_REQ."""
    CONNECTED = "connected"
    CLOSING = "closing"
    CLOSED = "closed"
