"""Interface counters: what queue pairs sent and received, by the counter their path names.

`ports/N/counters` of sysfs on RoCE (Linux `ib/mad.c: iboe_process_mad`). The last counter is the
sink: drivers name it where they do not count, and never read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bluebridge.device.layout.mlx4.ports import IF_COUNTER
from bluebridge.device.layout.net.ethernet import HEADER_SIZE
from bluebridge.device.layout.net.roce import BTH_SIZE, GRH_SIZE, ICRC_SIZE
from bluebridge.device.mlx4.settings.capabilities import INTERFACE_COUNTERS

HEADERS: Final = HEADER_SIZE + GRH_SIZE + BTH_SIZE + ICRC_SIZE
"""Bytes of a RoCE v1 packet around what it carries."""


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

    def received(self, packets: int, length: int) -> None:
        """Count a message that came."""
        self.rx_packets += packets
        self.rx_bytes += length


class InterfaceCounters:
    """The counters of one HCA."""

    def __init__(self) -> None:
        self._counters = [InterfaceCounter() for _ in range(INTERFACE_COUNTERS)]

    def reset(self) -> None:
        """All zero; queue pairs that are gone keep what they had."""
        self._counters = [InterfaceCounter() for _ in range(INTERFACE_COUNTERS)]

    def of(self, index: int) -> InterfaceCounter:
        """Counter `index`, which its queue pairs count in."""
        return self._counters[index]

    def read(self, index: int, *, clear: bool) -> bytes:
        """The mailbox of QUERY_IF_STAT."""
        counter = self._counters[index]
        answer = IF_COUNTER.pack(
            interfaces=1,
            rx_frames=counter.rx_packets,
            rx_bytes=counter.rx_bytes + counter.rx_packets * HEADERS,
            tx_frames=counter.tx_packets,
            tx_bytes=counter.tx_bytes + counter.tx_packets * HEADERS,
        )
        if clear:
            counter.rx_packets = counter.rx_bytes = counter.tx_packets = counter.tx_bytes = 0
        return bytes(answer)
