"""Interface counters: what queue pairs sent and received, by the counter their path names.

`ports/N/counters` of sysfs on RoCE (Linux `ib/mad.c: iboe_process_mad`). The last counter is the
sink, which nobody reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bluebridge.device.hca.commands.command import Command, Handler
from bluebridge.device.hca.settings.refusal import CommandError
from bluebridge.device.layout.mlx4.commands import MODIFIER_RESET_COUNTER, Opcode, Status
from bluebridge.device.layout.mlx4.ports import IF_COUNTER
from bluebridge.device.layout.net.ethernet import HEADER_SIZE
from bluebridge.device.layout.net.roce import BTH_SIZE, GRH_SIZE, ICRC_SIZE

if TYPE_CHECKING:
    from bluebridge.device.hca.device import Hca

COUNTERS = 256
HEADERS = HEADER_SIZE + GRH_SIZE + BTH_SIZE + ICRC_SIZE
"""Bytes of a RoCE v1 packet around what it carries."""


@dataclass(slots=True)
class Traffic:
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
        self._traffic = [Traffic() for _ in range(COUNTERS)]

    def reset(self) -> None:
        """All zero; queue pairs that are gone keep what they had."""
        self._traffic = [Traffic() for _ in range(COUNTERS)]

    def of(self, index: int) -> Traffic:
        """Counter `index`, which its queue pairs count in."""
        return self._traffic[index]

    def read(self, index: int, *, clear: bool) -> bytes:
        """The mailbox of QUERY_IF_STAT."""
        traffic = self._traffic[index]
        answer = IF_COUNTER.pack(
            interfaces=1,
            rx_frames=traffic.rx_packets,
            rx_bytes=traffic.rx_bytes + traffic.rx_packets * HEADERS,
            tx_frames=traffic.tx_packets,
            tx_bytes=traffic.tx_bytes + traffic.tx_packets * HEADERS,
        )
        if clear:
            traffic.rx_packets = traffic.rx_bytes = traffic.tx_packets = traffic.tx_bytes = 0
        return bytes(answer)


def query_if_stat(hca: Hca, command: Command) -> bytes:
    """One counter; bit 31 of the modifier zeroes it."""
    index = command.in_modifier & ~MODIFIER_RESET_COUNTER
    if index >= COUNTERS:
        raise CommandError(Status.BAD_INDEX, f"counter {index:#x}")
    return hca.counters.read(index, clear=bool(command.in_modifier & MODIFIER_RESET_COUNTER))


HANDLERS: dict[int, Handler] = {Opcode.QUERY_IF_STAT: query_if_stat}
