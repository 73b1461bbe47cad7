"""One connection of a path, in the form that both engines use."""

from __future__ import annotations

from bluebridge.guest.protocols.rtrs.engine.send_queue import SendQueue


class EngineConnection:
    """A connection of a path: `number` identifies it in the engine, `cid` in the path."""

    def __init__(self, number: int, cid: int, queue: SendQueue) -> None:
        self.number = number
        self.cid = cid
        self.queue = queue
        self.established = False
        self.drained = False
        self.disconnected = False
        """True once the peer's end of the connection is known to be closed."""
