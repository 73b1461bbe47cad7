"""A network interface on an engine's Ethernet device: frames in bursts, and their counters."""

from __future__ import annotations

import argparse
import select
from dataclasses import dataclass
from typing import Protocol

from bluebridge.device.layout.ntrdma.port import ETHERNET_CAPACITY
from bluebridge.guest.protocols.ntrdma.engine.ethernet import SMALLEST_FRAME, Ethernet

BURST = 32
"""Frames that are sent to the peer at once, with one interrupt."""


class FramePort(Protocol):
    """The source and sink of frames: a TAP interface of the kernel."""

    @property
    def name(self) -> str:
        """The name of the interface."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is a frame to send."""

    def read_into(self, space: memoryview) -> int:
        """Put the next frame into `space` and return its length, 0 when there is none.

        Raises `DeviceError` when the port has gone.
        """

    def write(self, frame: memoryview) -> bool:
        """Write a frame that has come; returns False if it was not taken."""

    def set_carrier(self, up: bool) -> None:
        """Set the carrier: True when the peer's interface is present."""

    def has_address(self, gid: bytes) -> bool:
        """Return True if the IP address of a GID is one of the interface's."""

    def close(self) -> None:
        """Free the interface."""


class Interface:
    """`Network` of an engine; its methods are called under the lock of the engine's service."""

    def __init__(self, port: FramePort, frame_bytes: int, frame_count: int) -> None:
        self.port = port
        self.frame_bytes = frame_bytes
        self.frame_count = frame_count
        self.refused = self.received_bytes = self.sent_bytes = 0
        self._ethernet: Ethernet | None = None
        self._delivered = False

    def attach(self, ethernet: Ethernet | None) -> None:
        """Set the Ethernet device that the interface is on."""
        self._ethernet = ethernet

    # -- from the peer --------------------------------------------------------------------------

    def receive(self, frame: memoryview) -> None:
        """Take a frame that has come."""
        self._delivered = True
        if self.port.write(frame):
            self.received_bytes += len(frame)
        else:
            self.refused += 1

    def set_carrier(self, up: bool) -> None:
        """Set the carrier: True when the peer's interface is present."""
        self.port.set_carrier(up)

    # -- to the peer ----------------------------------------------------------------------------

    @property
    def wait_for(self) -> list[tuple[int, int]]:
        """The port's descriptor with the events of `select.poll` that want `serve`, if any do."""
        ethernet = self._ethernet
        if ethernet is None or not ethernet.wants_frames:
            return []
        return [(self.port.fileno(), select.POLLIN)]

    def serve(self, readable: bool) -> None:
        """Send a burst of frames, if there may be some; it leaves when the engine runs.

        A frame that was just delivered is answered by the kernel at once, often.
        """
        ethernet = self._ethernet
        if ethernet is None or not (readable or self._delivered):
            return
        self._delivered = False
        for _ in range(BURST):
            space = ethernet.space()
            length = 0 if space is None else self.port.read_into(space)
            if not length:
                return
            self.sent_bytes += length
            ethernet.send(length)

    # -- for users ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the network interface."""
        return self.port.name

    def has_address(self, gid: bytes) -> bool:
        """Whether the IP address of a GID is one of the interface's."""
        return self.port.has_address(gid)

    def counters(self) -> str:
        """Return the counts of frames that have crossed, in one line."""
        if self._ethernet is None:
            return f"{self.name}: not connected to a device"
        sender, receiver = self._ethernet.sender, self._ethernet.receiver
        return (
            f"{self.name}: sent {sender.frames} frames ({self.sent_bytes} bytes) in "
            f"{sender.bursts} bursts, {sender.dropped} dropped; received {receiver.frames} "
            f"({self.received_bytes} bytes), {receiver.dropped + self.refused} dropped"
        )

    def close(self) -> None:
        """Give the port back."""
        self.port.close()


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
