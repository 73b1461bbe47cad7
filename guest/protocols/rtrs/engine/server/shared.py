"""The state that the parts of a server share."""

from __future__ import annotations

from bluebridge.guest.protocols.rtrs.engine.actions import Action, Serve, ServerMemory
from bluebridge.guest.protocols.rtrs.engine.heartbeat import Alarms
from bluebridge.guest.protocols.rtrs.engine.server.messages import acceptance, check
from bluebridge.guest.protocols.rtrs.engine.server.operations import ChunkUse, Operation
from bluebridge.guest.protocols.rtrs.engine.settings import ServerSettings


class Shared:
    """The common state of one server: memory, settings, actions, alarms and operations.

    Raises `ValueError` for invalid settings.
    """

    def __init__(self, memory: ServerMemory, settings: ServerSettings) -> None:
        check(settings)
        self.memory = memory
        self.settings = settings
        self.acceptance = acceptance(settings)
        self.outbox: list[Action] = []
        self.alarms = Alarms()
        self.operations: dict[int, Operation] = {}
        self.waiting: set[int] = set()
        """The numbers of the paths that wait for the end of operations."""
        self._last = 0

    def serve(self, operation: Operation, session: int) -> None:
        """Give an operation to the layer above."""
        message = operation.message
        if message is None:
            return
        self._last += 1
        operation.number = self._last
        self.operations[self._last] = operation
        chunk, user = operation.chunk, message.user
        serve = Serve(self._last, session, chunk, message.direction, message.length, user)
        self.outbox.append(serve)


class Session:
    """A session: its chunks, and the name that the client gives with its first INFO_REQ."""

    def __init__(self, number: int, uuid: bytes) -> None:
        self.number = number
        self.uuid = uuid
        self.name = ""
        self.chunk_use = ChunkUse()
        self.up = 0
        """The number of connected paths."""
