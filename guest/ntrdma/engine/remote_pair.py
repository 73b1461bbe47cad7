"""The twin of a queue pair of the peer: its receives for this side's sends, and its sends."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma.commands import QueueState
from bluebridge.device.layout.ntrdma.work import WorkStatus
from bluebridge.guest.ntrdma.engine.memory import (
    COMPLETION,
    SendEntry,
    Words,
    advanced,
    distance,
    recv_size,
    rings,
    send_size,
    unpack_receive,
    valid,
)
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.queue_pair import RECEIVING
from bluebridge.guest.ntrdma.engine.regions import Region
from bluebridge.guest.ntrdma.engine.transport import Transport
from bluebridge.guest.verbs.values import Sge

MOST_ENTRIES = 1 << 16
MOST_PIECES = 64


class CorruptRing(Exception):
    """The peer wrote an impossible value into a ring."""


class RemotePair:
    """The twin of the peer's queue pair `key`; `regions` are those of its protection domain."""

    def __init__(
        self,
        transport: Transport,
        words: Words,
        key: int,
        regions: dict[int, Region],
        receives: tuple[int, int],
        sends: tuple[int, int],
        starts: tuple[int, int] = (0, 0),
    ) -> None:
        """Make the twin; `receives` and `sends` are capacity and pieces. `MemoryError`.

        `starts` are the indices at which both rings stand, as those of version 0.1 run on when
        it connects anew.
        """
        self.key = key
        self.regions = regions
        self.state = QueueState.RESET
        self.access: int | None = None
        """The rights that its owner grants, None for an owner that leaves them to its regions."""
        self.peer_key = 0
        self.bell = 0
        self.broken = False
        """True after a send has failed, so that the rest is aborted."""
        self.completion_address = self.consumed_address = self.completion_bell = 0
        self.recv_capacity, self._recv_pieces = max(1, receives[0]), receives[1]
        self.send_capacity, self._send_pieces = max(1, sends[0]), sends[1]
        self._words = words
        self.receives, self.sends, self.completions = rings(
            transport,
            (self.recv_capacity, recv_size(self._recv_pieces)),
            (self.send_capacity, send_size(self._send_pieces)),
            (self.send_capacity, COMPLETION.size),
        )
        self.recv_produced, self.send_produced = words.allocate(), words.allocate()
        self.taken, self.consumed = starts
        self._answered = self.consumed
        self.recv_produced.set(self.taken)
        self.send_produced.set(self.consumed)

    def receives_from(self, key: int) -> bool:
        """Return True if it takes messages of this side's queue pair `key`."""
        return self.peer_key == key and self.state in RECEIVING

    # -- its receives ---------------------------------------------------------------------------

    def take_receive(self) -> tuple[int, list[Sge]] | None:
        """Use the next receive; returns index and pieces, or None. Raises `CorruptRing`."""
        produced, taken = self.recv_produced.get(), self.taken
        if not valid(taken, produced, self.recv_capacity):
            raise CorruptRing
        if produced == taken:
            return None
        pieces = unpack_receive(self.receives.entry(taken), self._recv_pieces)
        if pieces is None:
            raise CorruptRing
        self.taken = advanced(taken, 1, self.recv_capacity)
        return taken, pieces

    # -- its sends ------------------------------------------------------------------------------

    def arrived(self, produced: int) -> int:
        """Return the number of sends up to index `produced`. Raises `CorruptRing`."""
        if not valid(self.consumed, produced, self.send_capacity):
            raise CorruptRing
        return distance(self.consumed, produced, self.send_capacity)

    def next_send(self) -> SendEntry | None:
        """Return the oldest send; None when it is malformed."""
        return SendEntry.unpack(self.sends.entry(self.consumed), self._send_pieces)

    def answer(self, entry: SendEntry | None, status: WorkStatus, length: int) -> None:
        """Note that the oldest send has ended, which `push_answers` tells the peer."""
        handle, op = (entry.handle, entry.op) if entry is not None else (0, 0)
        completion = COMPLETION.pack(handle, op, status, length, 0)
        self.completions.put(self.consumed, completion)
        self.consumed = advanced(self.consumed, 1, self.send_capacity)

    def push_answers(self, peer: Peer) -> None:
        """Copy the completions of what has ended to the peer."""
        count = distance(self._answered, self.consumed, self.send_capacity)
        if count:
            self.completions.push(self.completion_address, self._answered, count)
            self._answered = self.consumed
            peer.publish(self.consumed_address, self.consumed, self.completion_bell)

    def close(self) -> None:
        """Free the memory of the rings."""
        for ring in (self.receives, self.sends, self.completions):
            ring.free()
        self._words.free(self.recv_produced)
        self._words.free(self.send_produced)
