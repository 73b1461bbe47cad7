"""Interface counters: what queue pairs sent and received, by the counter their path names.

`ports/N/counters` of sysfs on RoCE (Linux `ib/mad.c: iboe_process_mad`). The last counter is the
sink: drivers name it where they do not count, and never read it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class InterfaceCounter:
    """The packets sent and received by queue pairs of one counter, and their bytes."""

    rx_packets: int = 0
    rx_bytes: int = 0
    tx_packets: int = 0
    tx_bytes: int = 0

    def sent(self, packets: int, length: int) -> None:
        """Count a message that was sent."""
        self.tx_packets += packets
        self.tx_bytes += length

    def clear(self) -> None:
        """Set all values to zero."""
        self.rx_packets = self.rx_bytes = self.tx_packets = self.tx_bytes = 0

    def received(self, packets: int, length: int) -> None:
        """Count a message that was received."""
        self.rx_packets += packets
        self.rx_bytes += length


class InterfaceCounters:
    """The `count` counters of one adapter."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.reset()

    def reset(self) -> None:
        """Replace all counters by zeroed ones; queue pairs that are gone keep their old ones."""
        self._counters = [InterfaceCounter() for _ in range(self._count)]

    def of(self, index: int) -> InterfaceCounter:
        """Return counter `index`, in which the queue pairs that name it count."""
        return self._counters[index]
