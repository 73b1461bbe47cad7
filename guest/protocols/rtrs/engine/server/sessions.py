"""A session of a server, shared by its paths."""

from __future__ import annotations

from bluebridge.guest.protocols.rtrs.engine.server.operations import ChunkUse


class Session:
    """A session: its chunks, and the name that the client gives with its first INFO_REQ."""

    def __init__(self, number: int, uuid: bytes) -> None:
        self.number = number
        self.uuid = uuid
        self.name = ""
        self.chunk_use = ChunkUse()
        self.up = 0
        """The number of connected paths."""
