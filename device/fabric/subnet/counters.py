"""The counters of a port, as performance management reads them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bluebridge.device import pieces
from bluebridge.device.fabric.addresses import is_group
from bluebridge.device.fabric.messages import Datagram, Frames, Message, Request, Response
from bluebridge.device.layout.net.operations import Op

PACKET_OVERHEAD = 30
"""Number of bytes around a packet's payload: LRH, BTH, ICRC, VCRC; no extended headers."""
WORD = 4


@dataclass(slots=True)
class PortCounters:
    """The counters of a port: packets, and data in 4-byte words."""

    xmit_data: int = 0
    rcv_data: int = 0
    xmit_packets: int = 0
    rcv_packets: int = 0
    multicast_xmit_packets: int = 0
    multicast_rcv_packets: int = 0
    xmit_discards: int = 0
    vl15_dropped: int = 0
    link_downed: int = 0

    def sent(self, packets: int, words: int, group: bool) -> None:
        """Count a message that the port sent."""
        self.xmit_packets += packets
        self.xmit_data += words
        if group:
            self.multicast_xmit_packets += packets

    def received(self, packets: int, words: int, group: bool) -> None:
        """Count a message that the port received."""
        self.rcv_packets += packets
        self.rcv_data += words
        if group:
            self.multicast_rcv_packets += packets

    def reset(self) -> None:
        """Set all counters to zero."""
        for name in asdict(self):
            setattr(self, name, 0)


def size_of(message: Message) -> tuple[int, int, bool]:
    """Return packets and 4-byte words of a message, and whether it is for a group."""
    if isinstance(message, Request):
        asks = message.op is Op.READ
        packets, length = (1, 0) if asks else (message.packets, message.length)
    elif isinstance(message, Response):
        packets, length = message.packets if message.read else 1, pieces.size(message.payload)
    elif isinstance(message, Frames):
        sizes = [len(frame) for train in message.trains for frame in train.frames]
        return len(sizes), sum(sizes) // WORD, False
    else:
        packets, length = 1, len(message.payload)
    group = isinstance(message, Datagram) and is_group(message.route.dmac)
    return packets, (length + packets * PACKET_OVERHEAD) // WORD, group
