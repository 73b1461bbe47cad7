"""A connection of a path as both engines use it, with its send queue.

The queue signals some entries, and lets chains wait for room.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from bluebridge.device.layout.net.rtrs import SERVICE_QUEUE_DEPTH
from bluebridge.guest.protocols.rtrs.engine.actions import (
    Action,
    PostSend,
    WorkRequest,
    WriteImmediate,
)

SIGNALED: Final = 1
"""The token of a request that is signaled only to free entries of the queue."""
FIRST_SLOT_TOKEN: Final = 2
"""The token of LOCAL_INV for slot or chunk 0; those of the others follow."""


class SendQueue:
    """Counts the entries of a queue pair's send queue, so that it never overflows.

    Completions are in order: a signaled one frees its own entry and all in front of it.
    """

    def __init__(self, outbox: list[Action], connection: int, size: int, depth: int) -> None:
        self._outbox = outbox
        self._connection = connection
        self._size = size
        self._used = 0
        self._unsignaled = 0
        self._signaled: deque[int] = deque()
        """The numbers of entries that each outstanding signaled completion frees."""
        self._waiting: deque[list[WorkRequest]] = deque()
        self._chains = 1
        self._interval = 1
        self.set_depth(depth)

    def set_depth(self, depth: int) -> None:
        """Signal every `depth` chains, or more often if the queue is short."""
        self._interval = max(1, min(depth, SERVICE_QUEUE_DEPTH, self._size // 8))

    def token(self) -> int:
        """Return the token for the last request of a chain that is about to be posted."""
        self._chains += 1
        return 0 if self._chains % self._interval else SIGNALED

    def post(self, requests: list[WorkRequest]) -> None:
        """Post a chain as soon as there is room; of its requests only the last may be signaled."""
        if self._waiting or self._used + len(requests) > self._size:
            self._waiting.append(requests)
        else:
            self._post(requests)

    def post_immediate(self, immediate: int) -> None:
        """Post a message that is an immediate and nothing else."""
        self.post([WriteImmediate(immediate, self.token())])

    def completed(self) -> None:
        """Note that the oldest signaled request is done."""
        if not self._signaled:
            return
        self._used -= self._signaled.popleft()
        while self._waiting and self._used + len(self._waiting[0]) <= self._size:
            self._post(self._waiting.popleft())

    def _post(self, requests: list[WorkRequest]) -> None:
        count = len(requests)
        self._used += count
        self._unsignaled += count
        if requests[-1].token:
            self._signaled.append(self._unsignaled)
            self._unsignaled = 0
        self._outbox.append(PostSend(self._connection, requests))


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
