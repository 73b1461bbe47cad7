"""One connection of a path, as both engines see it."""

from __future__ import annotations

from bluebridge.guest.protocols.rtrs.engine.send_queue import SendQueue


class EngineConnection:
    """A queue pair: its `number` is the engine's name for it, `cid` its number in the path."""

    def __init__(self, number: int, cid: int, queue: SendQueue) -> None:
        self.number = number
        self.cid = cid
        self.queue = queue
        self.established = False
        self.drained = False
        self.disconnected = False
        """Whether the peer's end of the connection is known."""
