"""The halves of a queue pair, which its role chooses: these do nothing, others derive from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bluebridge.device.fabric.messages import Request, Response
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.rdma.work import SendWork, WorkError


class Outstanding:
    """The requests of an engine without an answer: the numbers of their `entries`, oldest first.

    `retries` and `rnr_retries` count repetitions of the oldest one. `waits`: it will be sent again.
    """

    def __init__(self, entries: list[int], retries: int, rnr_retries: int, waits: bool) -> None:
        self.entries = entries
        self.retries = retries
        self.rnr_retries = rnr_retries
        self.waits = waits


class Pace:
    """Congestion as an engine met it: packets with `marks`, reports `sent` and `received`.

    `rate` and the `target` it recovers to are in Mb/s, `alpha` is the estimate of congestion.
    """

    def __init__(
        self,
        marks: int,
        sent: int,
        received: int,
        rate: float,
        target: float,
        alpha: float,
        limited: bool,
    ) -> None:
        self.marks = marks
        self.sent = sent
        self.received = received
        self.rate = rate
        self.target = target
        self.alpha = alpha
        self.limited = limited


class SendEngine:
    """The sending half of a queue pair. `next_psn` is the PSN of the next request.

    This one carries nothing out, as that of a queue pair that is gone.
    """

    def __init__(self) -> None:
        self.next_psn = 0

    @property
    def idle(self) -> bool:
        """True while no request waits for its answer."""
        return True

    def execute(self, work: SendWork) -> None:
        """Carry out a work request, or hold it when it must wait."""

    def refuse(self, index: int, error: WorkError) -> None:
        """Complete the entry with this free-running number, which makes no sense, in error."""

    def blocked(self) -> bool:
        """Return True while the next entry has to wait; the engine runs the queue afterwards."""
        return False

    def finish(self) -> None:
        """Send what was collected during a walk of the ring that is over for now."""

    def receive(self, response: Response) -> None:
        """Process an answer of the connected peer."""

    def receive_packet(self, packet: TransportPacket) -> None:
        """Process an answer of the connected peer, on a network of packets."""

    def reported(self) -> None:
        """Slow down after the peer's report of congestion."""

    def marked(self) -> None:
        """Take note that a packet of the peer met congestion."""

    def admits_data(self, most: int) -> int:
        """Return how many packets with data the rate lets leave together, at most `most`."""
        return most

    def spend(self, size: int) -> None:
        """Count the bytes of a packet of the responder that left."""

    def wait(self, answerer: Callable[[], None]) -> None:
        """Call an answerer in a later turn, when the rate lets more leave."""

    def resume(self, *, failed: bool) -> None:
        """Go on with what waited for absent pages, which are there now unless that `failed`."""

    def outstanding(self) -> Outstanding | None:
        """Return the requests without an answer; None if answers are not waited for."""
        return None

    def pace(self) -> Pace | None:
        """Return what the engine knows of congestion; None if there is no rate."""
        return None

    def abort(self) -> None:
        """Complete everything outstanding as flushed, and cancel timers."""

    def stop(self) -> None:
        """Forget everything outstanding without completing it, and cancel timers."""


CLOSED: Final = SendEngine()


class ReceiveEngine:
    """The answering half of a queue pair; `psn` is the PSN expected next, `msn` counts messages.

    This one answers nothing, as that of a queue pair without a connection; its `psn` is what
    software set, its `msn` stays 0.
    """

    def __init__(self) -> None:
        self.psn = 0
        self.msn = 0

    def receive(self, request: Request) -> None:
        """Process a request of the connected peer."""

    def receive_packet(self, packet: TransportPacket) -> None:
        """Process a request of the connected peer, on a network of packets."""

    def resume(self, *, failed: bool) -> None:
        """Serve the peer what waited for absent pages, or refuse it where that `failed`."""

    def abort(self) -> None:
        """Flush the receive that a message is just moving into, if there is one."""

    def stop(self) -> None:
        """Forget the requests that wait."""
