"""The pace of a queue pair whose packets met congestion: what waits leaves at a permitted rate.

Packets leave in bursts: timers of the loop are no finer than a millisecond, packets shorter. There
is no clock: a burst is followed by the time that its bytes take, so that the pace may be slower
than the rate and is never faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.pci.bus import HostBus, Timer
from bluebridge.device.rdma.by_packets.dcqcn import LAB, Parameters, RateControl

BURST_SECONDS: Final = 0.002
"""Time whose bytes leave together."""
_BYTES_PER_SECOND: Final = 1e6 / 8
"""Those of 1 Mb/s."""


class PacedSide(Protocol):
    """The owner of a pacer."""

    def depart(self, packet: TransportPacket) -> None:
        """Send a packet whose turn has come."""

    def rate_changed(self, cause: str) -> None:
        """Take note of another rate."""


class Pacer:
    """Packets and answerers of one queue pair in the order in which they wait.

    An answerer is called when its turn has come and sends what the pacer lets it. `sends` is the
    number of packets that wait.
    """

    __slots__ = (
        "_alpha", "_budget", "_bus", "_bytes", "_parameters", "_queue", "_release", "_side",
        "_step", "control", "sends",
    )  # fmt: skip

    def __init__(self, bus: HostBus, side: PacedSide, parameters: Parameters = LAB) -> None:
        self._bus = bus
        self._side = side
        self._parameters = parameters
        self.control = RateControl(parameters)
        self._queue: deque[TransportPacket | Callable[[], None]] = deque()
        self._bytes = self._budget = self._burst()
        self.sends = 0
        self._release: Timer | None = None
        self._alpha: Timer | None = None
        self._step: Timer | None = None

    @property
    def open(self) -> bool:
        """True while the rate lets a packet leave."""
        return self._budget > 0 or not self.control.limited

    @property
    def done(self) -> bool:
        """True when there is no limit and nothing waits."""
        return not self.control.limited and not self._queue

    # -- what leaves ----------------------------------------------------------------------------

    def submit(self, packet: TransportPacket) -> None:
        """Let a packet leave now or in its turn."""
        if self.open and not self._queue:
            self._depart(packet)
        else:
            self._queue.append(packet)
            self.sends += 1

    def wait(self, answerer: Callable[[], None]) -> None:
        """Call an answerer in its turn, never at once."""
        self._queue.append(answerer)
        self._go_on_soon()

    def spend(self, size: int) -> None:
        """Count the bytes of a packet that left."""
        self._budget -= size
        if self._budget <= 0 and self._release is None:
            seconds = (self._bytes - self._budget) / (self.control.rate * _BYTES_PER_SECOND)
            self._release = self._bus.call_later(seconds, self._go_on)
        if self.control.limited and self.control.sent(size):
            self._changed("bytes")

    def recall(self) -> None:
        """Forget the packets that wait; answerers stay."""
        self._queue = deque(each for each in self._queue if not isinstance(each, TransportPacket))
        self.sends = 0

    def stop(self) -> None:
        """Forget all that waits, and cancel the timers."""
        self._queue.clear()
        self.sends = 0
        for timer in (self._release, self._alpha, self._step):
            if timer is not None:
                timer.cancel()
        self._release = self._alpha = self._step = None

    def _depart(self, packet: TransportPacket) -> None:
        self._side.depart(packet)
        self.spend(len(packet.payload))

    def _go_on(self) -> None:
        """Begin a burst with what waits, each once at most: the rest is of a later turn."""
        self._release = None
        self._bytes = self._budget = self._burst()
        for _ in range(len(self._queue)):
            if not self._queue or not self.open:
                break
            each = self._queue.popleft()
            if isinstance(each, TransportPacket):
                self.sends -= 1
                self._depart(each)
            else:
                each()
        if self._queue:
            self._go_on_soon()
        elif self.done:
            self._side.rate_changed("end")

    def _go_on_soon(self) -> None:
        if self._release is None:
            self._release = self._bus.call_later(0.0, self._go_on)

    def _burst(self) -> float:
        return self.control.rate * _BYTES_PER_SECOND * BURST_SECONDS

    # -- the rate -------------------------------------------------------------------------------

    def reported(self) -> None:
        """Slow down: a receiver reports congestion. Both periods begin anew."""
        self.control.reported()
        self._budget = min(self._budget, self._burst())
        self._begin_alpha()
        self._begin_step()
        self._side.rate_changed("CNP")

    def _begin_alpha(self) -> None:
        if self._alpha is not None:
            self._alpha.cancel()
        self._alpha = self._bus.call_later(self._parameters.alpha_period / 1e6, self._alpha_over)

    def _begin_step(self) -> None:
        if self._step is not None:
            self._step.cancel()
        self._step = self._bus.call_later(self._parameters.step_period / 1e6, self._step_over)

    def _alpha_over(self) -> None:
        self._alpha = None
        self.control.alpha_period_over()
        if self.control.alpha and self.control.limited:
            self._begin_alpha()

    def _step_over(self) -> None:
        self._step = None
        self.control.step_period_over()
        if self.control.limited:
            self._begin_step()
        self._changed("time")

    def _changed(self, cause: str) -> None:
        """Tell of a rate that has grown; without a limit nothing waits any longer."""
        if not self.control.limited:
            for timer in (self._alpha, self._step):
                if timer is not None:
                    timer.cancel()
            self._alpha = self._step = None
        self._side.rate_changed(cause)
