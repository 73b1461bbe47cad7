"""An own queue pair: its state, both queues, and the place of its twin at the peer."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from bluebridge.device.layout.ntrdma.commands import KEYED_RESPONSE, QueueState
from bluebridge.guest.ntrdma.engine.completions import CompletionQueue, Schedule
from bluebridge.guest.ntrdma.engine.memory import Words
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.receives import ReceiveQueue
from bluebridge.guest.ntrdma.engine.regions import Domain
from bluebridge.guest.ntrdma.engine.sends import SendQueue, SendRequest
from bluebridge.guest.ntrdma.engine.transport import Transport

RECEIVING = (QueueState.READY_TO_RECEIVE, QueueState.SEND_DRAIN, QueueState.READY_TO_SEND)
ENDLESS = 7
"""The number of RNR retries that means without end."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a queue pair: entries, pieces of memory for each, bytes of inline data."""

    sends: int = 64
    receives: int = 64
    send_pieces: int = 2
    recv_pieces: int = 1
    inline_bytes: int = 0
    signal_all: bool = False


@dataclass(frozen=True, slots=True)
class Rings:
    """The addresses of a twin's rings at the peer, and its bell."""

    recv_entries: int
    recv_produced: int
    send_entries: int
    send_produced: int
    send_bell: int


class QueuePair:
    """Queue pair `key` in `domain`. `rings` is None while it has no twin at the peer."""

    def __init__(
        self,
        transport: Transport,
        words: Words,
        key: int,
        domain: Domain,
        sizes: Sizes,
        queues: tuple[CompletionQueue, CompletionQueue],
        schedule: Schedule,
    ) -> None:
        """Make the queue pair; raises `MemoryError`, and holds nothing then."""
        self.key = key
        self.domain = domain
        self.sizes = sizes
        self.send_cq, self.recv_cq = queues
        self.state = QueueState.RESET
        self.access = 0
        self.peer_key = 0
        self.rings: Rings | None = None
        self.retry_seconds = 0.5
        """The time in seconds that the peer's queue pair may be missing."""
        self.rnr_retries = ENDLESS
        self.resume_at = 0.0
        """The time to try the first request again, which has to wait for the peer."""
        self.tries = 0
        self.waiting_since: float | None = None
        self.held_by: SendRequest | None = None
        """The request whose commands must be answered, or leave, before others may go on."""
        self.stopped = False
        """True after the last entry sent has failed, so that no other may follow."""
        self.epoch = 0
        """The number of deleted twins, by which answers about earlier ones are ignored."""
        self.flushed = False
        """True when everything has ended in the error state, so that posts end at once."""
        self._words = words
        self._consumed = words.allocate()
        with ExitStack() as undo:
            undo.callback(words.free, self._consumed)
            self.receives = ReceiveQueue(
                transport, key, sizes.receives, sizes.recv_pieces, self.recv_cq
            )
            undo.callback(self.receives.close)
            self.sends = SendQueue(
                transport,
                key,
                sizes.sends,
                sizes.send_pieces,
                sizes.inline_bytes,
                self.send_cq,
                self._consumed,
                schedule,
            )
            undo.pop_all()

    @property
    def receiving(self) -> bool:
        """True if the queue pair takes messages of its peer."""
        return self.state in RECEIVING

    def push_receives(self, peer: Peer) -> None:
        """Copy new receives to the peer, if there is a twin."""
        if self.rings is not None and peer.ready:
            self.receives.push(peer, self.rings.recv_entries, self.rings.recv_produced)

    def flush(self) -> None:
        """End all posted requests, none of which can be under way any more."""
        self.sends.collect()
        self.sends.flush()
        self.receives.flush()
        self.flushed = True

    def twin_is_new(self) -> None:
        """Note that the twin at the peer has empty rings."""
        self.sends.twin_is_new()
        self.receives.twin_is_new()

    def twin_is_made(self, response: bytes, peer: Peer) -> None:
        """Take the places of the twin's rings, if they can be, and let receives reach it."""
        value, reaches = KEYED_RESPONSE.get, peer.transport.reaches
        rings = Rings(
            value(response, "recv_entries"),
            value(response, "recv_produced"),
            value(response, "send_entries"),
            value(response, "send_produced"),
            value(response, "send_bell"),
        )
        good = (
            not (rings.recv_produced | rings.send_produced) & 3
            and peer.has_bell(rings.send_bell)
            and reaches(rings.recv_entries, self.receives.ring_bytes)
            and reaches(rings.send_entries, self.sends.ring.capacity * self.sends.ring.size)
            and reaches(rings.recv_produced, 4)
            and reaches(rings.send_produced, 4)
        )
        self.rings = rings if good else None
        self.push_receives(peer)

    def clear(self) -> None:
        """Go back to RESET: forget what was posted and completed."""
        self.state = QueueState.RESET
        self.rings = None
        self.flushed = self.stopped = False
        self.held_by = None
        self.tries, self.waiting_since, self.resume_at = 0, None, 0.0
        self.sends.clear()
        self.receives.clear()

    def close(self) -> None:
        """Free the memory of the queues."""
        self.sends.close()
        self.receives.close()
        self._words.free(self._consumed)
