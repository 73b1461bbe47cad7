"""Congestion as a queue pair meets it: reports of marked packets, then a lower rate.

A receiver of marked packets sends reports, CNPs (InfiniBand annex A17.9), to their sender: one for
the first, then at most one in an interval.

A report cuts the sender's rate: DCQCN (Zhu et al., SIGCOMM 2015). Without further reports it
recovers: first halfway to the rate before the cut, step by step, then beyond it by a constant, then
faster. A step is over after a time and after so many bytes.

Packets leave in bursts: timers of the loop are no finer than a millisecond, packets shorter. There
is no clock: a burst is followed by the time that its bytes take, so that the pace may be slower
than the rate and is never faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from bluebridge.device.fabric.messages import ConnectedPacket
from bluebridge.device.layout.net.roce import CONGESTION_SERVICE, BthOpcode
from bluebridge.device.packets.transport import TransportPacket
from bluebridge.device.pci.bus import HostBus, Timer
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import RECEIVING

SCALE: Final = 100
"""Factor by which the lab is slower than hardware: rates are divided by it, times multiplied."""

_LEAST_ALPHA: Final = 1 / 1024
"""Resolution of alpha in the adapter; what is less is nothing."""

BURST_SECONDS: Final = 0.002
"""Time whose bytes leave together."""
_BYTES_PER_SECOND: Final = 1e6 / 8
"""Those of 1 Mb/s."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one sender and its receivers; rates in Mb/s, periods in microseconds.

    The defaults are those of a ConnectX-3 Pro with a link of 40 Gb/s, as its vendor lists them.
    """

    line_rate: float = 40_000.0
    floor: float = 1.0
    first_alpha: float = 512 / 1024
    """Estimate of congestion at the first report."""
    weight: float = 16 / 1024
    """Weight of one report, or of a period without any, in that estimate."""
    alpha_period: float = 40.0
    step_period: float = 2000.0
    step_bytes: int = 500_000
    recovery_steps: int = 5
    """Steps by time or bytes before the rate may grow beyond the last target."""
    increase: float = 5.0
    fast_increase: float = 50.0
    report_interval: float = 40.0
    """Least time between two reports that a receiver sends for one queue pair."""

    def scaled(self, factor: float) -> Parameters:
        """Return them for a slower lab.

        The floor stays: acknowledge timers are not scaled, and must outlast a packet.
        """
        return replace(
            self,
            line_rate=self.line_rate / factor,
            increase=self.increase / factor,
            fast_increase=self.fast_increase / factor,
            alpha_period=self.alpha_period * factor,
            step_period=self.step_period * factor,
            report_interval=self.report_interval * factor,
        )


LAB: Final = Parameters().scaled(SCALE)
"""The parameters of the lab's queue pairs."""


class RateControl:
    """The `rate` of one sender in Mb/s, the `target` it recovers to, and its estimate `alpha`.

    It is `limited` from the first report until it has recovered.
    """

    def __init__(self, parameters: Parameters = LAB) -> None:
        self._parameters = parameters
        self.rate = self.target = parameters.line_rate
        self.alpha = 0.0
        self.limited = False
        self._bytes = self._by_bytes = self._by_time = 0

    def reported(self) -> None:
        """Cut the rate: a receiver reports congestion."""
        own = self._parameters
        if not self.limited:
            self.limited = True
            self.alpha = own.first_alpha
        self.target = self.rate
        self.rate = max(self.rate * (1 - self.alpha / 2), own.floor)
        self.alpha = (1 - own.weight) * self.alpha + own.weight
        self._bytes = self._by_bytes = self._by_time = 0

    def alpha_period_over(self) -> None:
        """Lower the estimate of congestion after a period without a report."""
        self.alpha *= 1 - self._parameters.weight
        if self.alpha < _LEAST_ALPHA:
            self.alpha = 0.0

    def step_period_over(self) -> None:
        """Raise the rate after a period without a report."""
        self._by_time += 1
        self._increase()

    def sent(self, size: int) -> bool:
        """Count bytes that left; returns True if they made a step that raised the rate."""
        self._bytes += size
        if self._bytes < self._parameters.step_bytes:
            return False
        self._bytes -= self._parameters.step_bytes
        self._by_bytes += 1
        self._increase()
        return True

    def _increase(self) -> None:
        own = self._parameters
        beyond = min(self._by_time, self._by_bytes) - own.recovery_steps
        if beyond > 0:
            self.target += beyond * own.fast_increase
        elif max(self._by_time, self._by_bytes) >= own.recovery_steps:
            self.target += own.increase
        self.target = min(self.target, own.line_rate)
        self.rate = (self.rate + self.target) / 2
        if own.line_rate - self.rate < own.increase:
            self.rate = self.target = own.line_rate
            self.limited = False


INTERVAL: Final = LAB.report_interval / 1e6
"""Least seconds between two reports."""


class Congestion:
    """Counts of one queue pair: `marks` on packets that came, reports `sent` and `received`."""

    def __init__(self, qp: QueuePair) -> None:
        self._qp = qp
        self._quiet = False  # since a report was sent a moment ago
        self.marks = self.sent = self.received = 0

    def marked(self) -> None:
        """Count a packet with a mark, and report it unless a report has just been sent."""
        self.marks += 1
        qp = self._qp
        if self._quiet or qp.state not in RECEIVING:
            return
        self._quiet = True
        self.sent += 1
        opcode = BthOpcode.CNP - CONGESTION_SERVICE
        report = TransportPacket(opcode, 0, service=CONGESTION_SERVICE)
        qp.port.send_packets([ConnectedPacket(qp.route, qp.remote_qpn, report, qp.qpn)])
        qp.bus.call_later(INTERVAL, self._may_report)

    def _may_report(self) -> None:
        self._quiet = False


class PacedSide(Protocol):
    """The owner of a pacer."""

    def rate_changed(self, cause: str) -> None:
        """Take note of another rate."""


class Pacer:
    """The halves of one queue pair that wait for the rate, in order.

    One is called when its turn has come, and sends what the pacer lets it.
    """

    def __init__(self, bus: HostBus, side: PacedSide, parameters: Parameters = LAB) -> None:
        self._bus = bus
        self._side = side
        self._parameters = parameters
        self.control = RateControl(parameters)
        self._queue: deque[Callable[[], None]] = deque()
        self._bytes = self._budget = self._burst()
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

    def wait(self, action: Callable[[], None]) -> None:
        """Call an action in its turn, never at once; twice in the queue is once."""
        if action not in self._queue:
            self._queue.append(action)
        self._go_on_soon()

    def spend(self, size: int) -> None:
        """Count the bytes of a packet that left."""
        self._budget -= size
        if self._budget <= 0 and self._release is None:
            seconds = (self._bytes - self._budget) / (self.control.rate * _BYTES_PER_SECOND)
            self._release = self._bus.call_later(seconds, self._go_on)
        if self.control.limited and self.control.sent(size):
            self._changed("bytes")

    def stop(self) -> None:
        """Forget all that waits, and cancel the timers."""
        self._queue.clear()
        for timer in (self._release, self._alpha, self._step):
            if timer is not None:
                timer.cancel()
        self._release = self._alpha = self._step = None

    def _go_on(self) -> None:
        """Begin a burst with what waits, each once at most: the rest is of a later turn."""
        self._release = None
        self._bytes = self._budget = self._burst()
        for _ in range(len(self._queue)):
            if not self._queue or not self.open:
                break
            self._queue.popleft()()
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
