"""The areas of a machine's memory by use, and the queue pairs that rings belong to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Use(Enum):
    """The uses of memory that a peer stores to; the values are the words of the views."""

    BLOCK = "block"
    BELL = "bell"
    COMMANDS = "command"
    COMMAND_INDEX = "commands produced"
    RESPONSES = "response"
    RESPONSE_INDEX = "commands consumed"
    SENDS = "send"
    SEND_INDEX = "sends produced"
    RECEIVES = "receive"
    RECEIVE_INDEX = "receives produced"
    COMPLETIONS = "completion"
    CONSUMED = "sends consumed"
    BUFFERS = "Ethernet buffer"
    BUFFER_INDEX = "Ethernet buffers produced"
    FRAME = "Ethernet frame"
    LENGTHS = "Ethernet completion"
    LENGTH_INDEX = "Ethernet buffers consumed"
    DATA = "data"
    MESSAGE = "interrupt"
    OTHER = "other"


INDEX_OF = {
    Use.COMMAND_INDEX: Use.COMMANDS,
    Use.RESPONSE_INDEX: Use.RESPONSES,
    Use.SEND_INDEX: Use.SENDS,
    Use.RECEIVE_INDEX: Use.RECEIVES,
    Use.CONSUMED: Use.COMPLETIONS,
    Use.BUFFER_INDEX: Use.BUFFERS,
    Use.LENGTH_INDEX: Use.LENGTHS,
}
"""The use of the ring that an index belongs to, by the use of the index."""
RINGS = frozenset(INDEX_OF.values())


class Queue:
    """Queue pair `key` of machine `owner`; capacities and piece counts are from its QP_CREATE."""

    def __init__(
        self, owner: str, key: int, sends: Sequence[int], receives: Sequence[int], bell: int
    ) -> None:
        self.owner, self.key = owner, key
        self.sends, self.send_pieces = sends
        self.receives, self.recv_pieces = receives
        self.bell = bell
        """The bell of its completions."""
        self.peer_key = 0
        """The number of the peer's queue pair, once it is connected."""
        self.sent = 0
        """Number of requests so far."""
        self.receive_events: dict[int, int] = {}
        """Number of the event that told of each receive, by its place in the ring."""

    def __str__(self) -> str:
        return f"QP {self.key:#x} of {self.owner}"


@dataclass(slots=True, eq=False)
class Area:
    """Bytes of memory with one use: a ring of `capacity` entries of `entry` bytes, a word or bells.

    For an index, `ring` is its ring's capacity and `last` the value that was stored last; for a
    ring, `part` is the beginning of an entry that was stored last, at `part_at`.
    """

    start: int
    entry: int
    capacity: int
    use: Use
    queue: Queue | None = None
    ring: int = 0
    last: int = 0
    part: bytes = b""
    part_at: int = 0

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.start + self.entry * self.capacity

    def advance(self, value: int) -> int | None:
        """Return how many new entries an index of `value` tells of; None if impossible."""
        if value >= 2 * self.ring:
            return None
        count = (value - self.last) % (2 * self.ring)
        return None if count > self.ring else count
