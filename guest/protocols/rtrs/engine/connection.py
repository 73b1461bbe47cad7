"""A connection as both engines have it: its send queue, messages, heartbeat and alarms.

The messages of every request are packed here, since a format table would be too slow for them.
The heartbeat is that of the kernel's rtrs.c (hb_work).
"""

from __future__ import annotations

import struct
from collections import deque
from enum import IntEnum
from typing import Final

from bluebridge.device.layout.net.rtrs import (
    SERVICE_QUEUE_DEPTH,
    ImmediateType,
    MessageType,
    immediate,
)
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

MESSAGE: Final = immediate(ImmediateType.HB_MSG, 0)
ACKNOWLEDGEMENT: Final = immediate(ImmediateType.HB_ACK, 0)

WRITE: Final = struct.Struct("<HH")
"""The format of the message of type RTRS_RDMA_WRITE."""
READ: Final = struct.Struct("<HHHH")
"""The format of the message of type RTRS_RDMA_READ."""
DESCRIPTOR: Final = struct.Struct("<QII")
"""The format of RTRS_SG_DESC: address, key, length."""
NEW_KEY: Final = struct.Struct("<HHI")
"""The format of the message of type RTRS_RKEY_RSP."""
LONGEST_MESSAGE: Final = 24
"""The bytes of a read message with its descriptor, the longest of all messages."""


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


class Beat(IntEnum):
    """The outcomes of a heartbeat's interval: send one, wait for an answer, or the peer is dead."""

    SEND = 0
    WAIT = 1
    """The last heartbeat is not answered yet."""
    DEAD = 2


class Heartbeat:
    """The kernel's count of misses: intervals in which nothing came from the peer.

    With 5 misses allowed, the peer is dead 6 intervals after the first heartbeat without answer.
    """

    def __init__(self, missed_max: int) -> None:
        self._missed_max = missed_max
        self._missed = 0
        self._sent_at = 0.0
        self.latency = 0.0
        """The round trip of the last heartbeat that was acknowledged, in seconds."""

    def heard(self) -> None:
        """Note that something came from the peer."""
        self._missed = 0

    def acknowledged(self, now: float) -> None:
        """Note that the last heartbeat is answered."""
        self.latency = now - self._sent_at

    def interval(self, now: float) -> Beat:
        """Return what is due now that an interval is over."""
        if self._missed > self._missed_max:
            return Beat.DEAD
        self._missed += 1
        if self._missed > 1:
            return Beat.WAIT
        self._sent_at = now
        return Beat.SEND


class Alarm(IntEnum):
    """The two alarms that a path can set."""

    STATE = 0
    """The alarm for a time limit or a pause of the state that the path is in."""
    HEARTBEAT = 1


class Alarms:
    """The times of alarms by path number and kind; `next` is the earliest."""

    def __init__(self) -> None:
        self._times: dict[tuple[int, Alarm], float] = {}
        self.next: float | None = None

    def set(self, path: int, kind: Alarm, time: float) -> None:
        """Set an alarm to `time`, in place of the time that was set before."""
        self._times[path, kind] = time
        self._find_next()

    def cancel(self, path: int) -> None:
        """Clear both alarms of this path."""
        self._times.pop((path, Alarm.STATE), None)
        self._times.pop((path, Alarm.HEARTBEAT), None)
        self._find_next()

    def due(self, now: float) -> list[tuple[int, Alarm]]:
        """Return and clear the alarms whose time has come, earliest first."""
        if self.next is None or now < self.next:
            return []
        found = sorted((time, key) for key, time in self._times.items() if time <= now)
        for _time, key in found:
            del self._times[key]
        self._find_next()
        return [key for _time, key in found]

    def _find_next(self) -> None:
        self.next = min(self._times.values(), default=None)


def next_key(key: int) -> int:
    """Return the key of the same region with its low byte counted up (that byte is the user's)."""
    return key & 0xFFFFFF00 | (key + 1) & 0xFF


def write_message(user: bytes) -> bytes:
    """Return RTRS_RDMA_WRITE behind the user message, as they follow the data."""
    return user + WRITE.pack(MessageType.WRITE, len(user))


def read_message(user: bytes, flags: int, address: int, key: int, length: int) -> bytes:
    """Return RTRS_RDMA_READ behind the user message, with the place of the answer.

    `length` 0 asks for no answer.
    """
    if not length:
        return user + READ.pack(MessageType.READ, len(user), 0, 0)
    head = READ.pack(MessageType.READ, len(user), flags, 1)
    return b"".join((user, head, DESCRIPTOR.pack(address, key, length)))
