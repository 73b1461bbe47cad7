"""Interface counters: what queue pairs sent and received, by the counter their path names.

`ports/N/counters` of sysfs on RoCE (Linux `ib/mad.c: iboe_process_mad`). The last counter is the
sink: drivers name it where they do not count, and never read it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class InterfaceCounter:
    """Packets in and out, and the bytes they carried."""

    rx_packets: int = 0
    rx_bytes: int = 0
    tx_packets: int = 0
    tx_bytes: int = 0

    def sent(self, packets: int, length: int) -> None:
        """Count a message that left."""
        self.tx_packets += packets
        self.tx_bytes += length

    def clear(self) -> None:
        """All zero."""
        self.rx_packets = self.rx_bytes = self.tx_packets = self.tx_bytes = 0

    def received(self, packets: int, length: int) -> None:
        """Count a message that came."""
        self.rx_packets += packets
        self.rx_bytes += length


class InterfaceCounters:
    """The `count` counters of one adapter."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.reset()

    def reset(self) -> None:
        """All zero; queue pairs that are gone keep what they had."""
        self._counters = [InterfaceCounter() for _ in range(self._count)]

    def of(self, index: int) -> InterfaceCounter:
        """Counter `index`, which its queue pairs count in."""
        return self._counters[index]
