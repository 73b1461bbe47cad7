"""Flow control of an Ethernet port: pause frames (IEEE 802.3 annex 31B) instead of losses.

A frame that finds no receive waits in the port while the peer is asked to pause. Receives are
posted in guest memory without a doorbell, so the port looks for them each millisecond. Both ends
must have flow control on (`ethtool -A`). A ring that is not refilled does not stop the
network: it is given up after `MOST_LOOKS` looks, and its frames are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol, Self

from bluebridge.device.fabric.messages import Frames, Message, Train
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_MAC_CONTROL,
    PAUSE,
    PAUSE_ADDRESS,
    PAUSE_OPCODE,
)
from bluebridge.device.pci.bus import HostBus, Timer
from bluebridge.device.rdma.ports.port_tables import Sources, Tables
from bluebridge.device.rdma.vocabulary import RECEIVING, PairState

POLL_SECONDS: Final = 0.001
MOST_LOOKS: Final = 2000
"""Looks without a new receive after which a ring is given up: some two seconds. A guest may not be
scheduled for that long on a busy host, and a paused peer loses nothing (the transmit
watchdog of Linux is at 15 seconds: `MLX4_EN_WATCHDOG_TIMEOUT`)."""
MAX_HELD: Final = 2048
"""Most frames that wait in a port."""
QUANTUM_SECONDS: Final = 512 / 400e6
"""Seconds of a pause quantum: 512 bit times, at about the real speed of the link."""
ASK_QUANTA: Final = 16384
ASK_AGAIN: Final = 8
"""Looks after which the peer is asked again: well before its pause ends."""


class FramePort(Protocol):
    """The part of a port that flow control uses."""

    tables: Tables
    sources: Sources

    def send(self, message: Message) -> int:
        """Hand a message to the fabric; returns the copies that receivers made."""


class ReceivingPair(Protocol):
    """The part of a queue pair that flow control uses; one that was destroyed is in RST."""

    @property
    def qpn(self) -> int:
        """The number of the queue pair."""

    @property
    def state(self) -> PairState:
        """The present state of the queue pair."""


class FrameBatch(Protocol):
    """Frames on their way into the receive ring of `qp`; `len` counts those that are left."""

    @property
    def qp(self) -> ReceivingPair:
        """The queue pair whose ring the frames are for."""

    def __len__(self) -> int: ...

    def append(self, other: Self, room: int) -> int:
        """Take over at most `room` frames of `other`; returns how many were not taken."""

    def deliver(self) -> int:
        """Put frames into the ring while it has receives; returns how many were lost."""


class Held:
    """Frames that wait for a ring; `looks` counts the looks since a receive was found last."""

    def __init__(self, batch: FrameBatch) -> None:
        self.batch = batch
        self.looks = 0


class PauseCounters:
    """Pause frames of one direction, the time they took, and how often they started one."""

    def __init__(self) -> None:
        self.frames = 0
        self.duration = 0.0
        self.transitions = 0


class FlowControl:
    """Flow control of one port; `sends`: may ask the peer to pause, `obeys`: pauses when asked."""

    def __init__(self, bus: HostBus, port: FramePort) -> None:
        self._bus = bus
        self._port = port
        self._timer: Timer | None = None
        self._resume_timer: Timer | None = None
        self.reset()

    def reset(self) -> None:
        """Drop what waits, end the pauses of both sides and turn flow control off."""
        for timer in (self._timer, self._resume_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._resume_timer = None
        self.sends = self.obeys = False
        self.paused = False
        self._since = 0.0
        self._asked_since = 0.0
        self._looks = 0
        self._held: dict[int, Held] = {}
        self._given_up: set[int] = set()
        self._waiting: dict[int, Callable[[], None]] = {}
        self.rx, self.tx = PauseCounters(), PauseCounters()

    # -- receiving ------------------------------------------------------------------------

    def accept(self, batch: FrameBatch) -> int:
        """Deliver frames, or hold them while their ring is empty; lost ones are counted.

        Returns how many were lost.
        """
        lost = self._deliver_or_hold(batch)
        self._port.tables.counters.rx.dropped += lost
        return lost

    def _deliver_or_hold(self, batch: FrameBatch) -> int:
        qpn = batch.qp.qpn
        if qpn in self._held:
            return self._held[qpn].batch.append(batch, self._room())
        before = len(batch)
        lost = batch.deliver()
        if len(batch) < before:
            self._given_up.discard(qpn)
        if not batch:
            return lost
        if not self.sends or qpn in self._given_up or len(batch) > self._room():
            return lost + len(batch)
        self._held[qpn] = Held(batch)
        if self._timer is None:
            self._asked_since = monotonic()
            self.tx.transitions += 1
            self._ask(ASK_QUANTA)
            self._looks = 0
            self._timer = self._bus.call_later(POLL_SECONDS, self._look)
        return lost

    def _room(self) -> int:
        return MAX_HELD - sum(len(held.batch) for held in self._held.values())

    def _look(self) -> None:
        """Look whether receives came for the frames that wait."""
        self._timer = None
        for qpn, held in list(self._held.items()):
            if not self._retry(held):
                del self._held[qpn]
        if not self._held:
            self.tx.duration += monotonic() - self._asked_since
            self._ask(0)
            return
        self._looks += 1
        if self._looks % ASK_AGAIN == 0:
            self._ask(ASK_QUANTA)
        self._timer = self._bus.call_later(POLL_SECONDS, self._look)

    def _retry(self, held: Held) -> bool:
        """Deliver what can be delivered; returns True while something still waits."""
        batch, counters = held.batch, self._port.tables.counters.rx
        qp, before = batch.qp, len(batch)
        if qp.state not in RECEIVING:
            counters.dropped += before
            return False
        counters.dropped += batch.deliver()
        if not batch:
            return False
        held.looks = held.looks + 1 if len(batch) == before else 0
        if held.looks < MOST_LOOKS:
            return True
        counters.dropped += len(batch)
        self._given_up.add(qp.qpn)
        return False

    def _ask(self, quanta: int) -> None:
        frame = PAUSE.pack(
            dmac=PAUSE_ADDRESS,
            smac=self._port.sources.mac,
            ethertype=ETHERTYPE_MAC_CONTROL,
            opcode=PAUSE_OPCODE,
            quanta=quanta,
        )
        self.tx.frames += 1
        self._port.send(Frames(PAUSE_ADDRESS, [Train([bytes(frame)])]))

    # -- sending --------------------------------------------------------------------------

    def receive(self, frame: bytes) -> None:
        """Process a MAC control frame from the peer, which software never sees."""
        if len(frame) < PAUSE.size or PAUSE.get(frame, "opcode") != PAUSE_OPCODE:
            return
        self.rx.frames += 1
        if not self.obeys:
            return
        if self._resume_timer is not None:
            self._resume_timer.cancel()
            self._resume_timer = None
        quanta = PAUSE.get(frame, "quanta")
        if not quanta:
            self._resume()
            return
        if not self.paused:
            self.paused, self._since = True, monotonic()
            self.rx.transitions += 1
        seconds = quanta * QUANTUM_SECONDS
        self._resume_timer = self._bus.call_later(seconds, self._resume)

    def wait(self, qpn: int, run: Callable[[], None]) -> None:
        """Call `run` when the pause is over, because queue pair `qpn` has something to send."""
        self._waiting[qpn] = run

    def _resume(self) -> None:
        self._resume_timer = None
        if not self.paused:
            return
        self.paused = False
        self.rx.duration += monotonic() - self._since
        waiting, self._waiting = self._waiting, {}
        for run in waiting.values():
            run()
