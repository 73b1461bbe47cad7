"""The options of a network interface over NTRDMA."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from bluebridge.device.layout.ntrdma.port import ETHERNET_CAPACITY
from bluebridge.guest.protocols.ntrdma.engine.frame_memory import SMALLEST_FRAME

DEFAULT_NAME = "ntrdma0"
DEFAULT_MTU = 65510
"""The MTU of ntb_netdev: the fewer the frames, the less work there is for each byte."""
SMALLEST_MTU, LARGEST_MTU = 68, 65521
"""IPv4's least, and the most that the kernel's TAP devices take."""
_MEMORY_BYTES = 4 << 20


@dataclass(frozen=True)
class EthernetOptions:
    """`address` is IPv4 or IPv6 with the bits of its network: 10.9.2.1/24, fd00:9:2::1/64."""

    address: str
    mtu: int = DEFAULT_MTU
    name: str = DEFAULT_NAME

    @property
    def frame_bytes(self) -> int:
        """The longest frame, its header included."""
        return self.mtu + SMALLEST_FRAME

    @property
    def frame_count(self) -> int:
        """Buffers for each direction: what fits into 4 MiB, as a power of two."""
        fitting = _MEMORY_BYTES // self.frame_bytes
        return int(min(ETHERNET_CAPACITY, 1 << fitting.bit_length() - 1))


def parse_mtu(text: str) -> int:
    """An MTU, as an argument. Raises `argparse.ArgumentTypeError`."""
    mtu = int(text)
    if not SMALLEST_MTU <= mtu <= LARGEST_MTU:
        raise argparse.ArgumentTypeError(f"{mtu} is not from {SMALLEST_MTU} to {LARGEST_MTU}")
    return mtu
