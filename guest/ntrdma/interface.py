"""A network interface of the guest on an engine's Ethernet device: a TAP interface of the kernel.

Frames cross in bursts, by read and write (drivers/net/tun.c).
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import ipaddress
import os
import select
import socket
import struct
import subprocess
from array import array
from dataclasses import dataclass
from pathlib import Path

from bluebridge.device.layout.net.roce import ip_gid, ipv4_gid, ipv4_number
from bluebridge.device.layout.ntrdma.port import ETHERNET_CAPACITY
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.ntrdma.engine.ethernet import SMALLEST_FRAME, Ethernet

BURST = 32
"""Frames that are sent to the peer at once, with one interrupt."""
DEFAULT_NAME = "ntrdma0"
DEFAULT_MTU = 65510
"""The MTU of ntb_netdev: the fewer the frames, the less work there is for each byte."""
SMALLEST_MTU, LARGEST_MTU = 68, 65521
"""IPv4's least, and the most that the kernel's TAP devices take."""
_MEMORY_BYTES = 4 << 20

_SIOCGIFCONF = 0x8912
_NAME_BYTES = 16
_ENTRY_BYTES = 40
"""struct ifreq of a 64-bit kernel (include/uapi/linux/if.h): the name, then a sockaddr_in."""
_IP_OFFSET = _NAME_BYTES + 4
_MOST = 256
_IPV6 = Path("/proc/net/if_inet6")

DEVICE = "/dev/net/tun"
QUEUED_FRAMES = 2000
"""Frames that the kernel keeps until they are read; further ones are dropped."""
_TUNSETIFF, _TUNSETCARRIER = 0x400454CA, 0x400454E2
_IFF_TAP, _IFF_NO_PI = 0x2, 0x1000
_IFF_UP = 0x1
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_SIOCSIFADDR, _SIOCSIFNETMASK = 0x8916, 0x891C
_SIOCSIFMTU, _SIOCSIFHWADDR, _SIOCSIFTXQLEN = 0x8922, 0x8924, 0x8943
_ARPHRD_ETHER = 1
_REQUEST = struct.Struct("16s24s")
"""struct ifreq of a 64-bit kernel."""
_REQUEST6 = struct.Struct("16sIi")
"""struct in6_ifreq: address, bits of the prefix, index of the interface."""


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
        return int(min(ETHERNET_CAPACITY, 1 << (fitting.bit_length() - 1)))


def parse_mtu(text: str) -> int:
    """An MTU, as an argument. Raises `argparse.ArgumentTypeError`."""
    mtu = int(text)
    if not SMALLEST_MTU <= mtu <= LARGEST_MTU:
        raise argparse.ArgumentTypeError(f"{mtu} is not from {SMALLEST_MTU} to {LARGEST_MTU}")
    return mtu


def mac_of(gid: bytes) -> bytes:
    """Return the MAC address of the interface over NTRDMA that has the IP address of a GID."""
    return (b"\x02\x00" if ipv4_number(gid) else b"\x02\x06") + gid[-4:]


def addresses_of(name: str) -> set[bytes]:
    """Return the GIDs of all IP addresses of an interface; none without such an interface."""
    entries = array("B", bytes(_MOST * _ENTRY_BYTES))
    request = struct.pack("iP", len(entries), entries.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, _SIOCGIFCONF, request)
    found = parse(bytes(entries[: struct.unpack_from("i", answer)[0]]), name)
    return found | (parse6(_IPV6.read_text(), name) if _IPV6.exists() else set())


def parse6(lines: str, name: str) -> set[bytes]:
    """Return one interface's addresses in the lines of /proc/net/if_inet6."""
    rows = [line.split() for line in lines.splitlines()]
    return {bytes.fromhex(row[0]) for row in rows if row[-1] == name}


def parse(entries: bytes, name: str) -> set[bytes]:
    """Return one interface's addresses in the answer of SIOCGIFCONF, those of `name:LABEL`, too."""
    found = set()
    for start in range(0, len(entries), _ENTRY_BYTES):
        entry = entries[start : start + _ENTRY_BYTES]
        label = entry[:_NAME_BYTES].partition(b"\0")[0].decode()
        if label.partition(":")[0] == name:
            found.add(ipv4_gid(entry[_IP_OFFSET : _IP_OFFSET + 4]))
    return found


class Tap:
    """An interface that is up with its address and goes with `close`. Root only.

    Raises `OSError` when it cannot be made, `ValueError` for an address that is none.
    """

    def __init__(self, options: EthernetOptions) -> None:
        self.name = options.name
        self.beyond = bytearray(1)
        network = ipaddress.ip_interface(options.address)
        _need_tun()
        self.descriptor = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            flags = struct.pack("H", _IFF_TAP | _IFF_NO_PI)
            fcntl.ioctl(self.descriptor, _TUNSETIFF, self._request(flags))
            self.set_carrier(False)
            self._configure(network, options.mtu)
        except OSError as error:
            os.close(self.descriptor)
            raise OSError(error.errno, f"interface {self.name}: {error.strerror}") from error

    def _request(self, value: bytes) -> bytes:
        return _REQUEST.pack(self.name.encode(), value)

    def _configure(
        self, network: ipaddress.IPv4Interface | ipaddress.IPv6Interface, mtu: int
    ) -> None:
        mac = struct.pack("H6s", _ARPHRD_ETHER, mac_of(ip_gid(network.ip.packed)))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for number, value in (
                (_SIOCSIFHWADDR, mac),
                (_SIOCSIFMTU, struct.pack("i", mtu)),
                (_SIOCSIFTXQLEN, struct.pack("i", QUEUED_FRAMES)),
            ):
                fcntl.ioctl(control, number, self._request(value))
            if isinstance(network, ipaddress.IPv4Interface):
                for number, address in (
                    (_SIOCSIFADDR, network.ip),
                    (_SIOCSIFNETMASK, network.netmask),
                ):
                    fcntl.ioctl(control, number, self._request(_internet(address)))
            request = fcntl.ioctl(control, _SIOCGIFFLAGS, self._request(b""))
            (flags,) = struct.unpack_from("H", request, 16)
            up = struct.pack("H", flags | _IFF_UP)
            fcntl.ioctl(control, _SIOCSIFFLAGS, self._request(up))
        if isinstance(network, ipaddress.IPv6Interface):
            self._add6(network)

    def _add6(self, network: ipaddress.IPv6Interface) -> None:
        """Add an IPv6 address, which the kernel takes for an interface that is up."""
        place = network.ip.packed, network.network.prefixlen, socket.if_nametoindex(self.name)
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, _SIOCSIFADDR, _REQUEST6.pack(*place))

    def fileno(self) -> int:
        return self.descriptor

    def read_into(self, space: memoryview) -> int:
        """Take the next frame of the kernel's; its length, 0 when there is none.

        Frames that are longer than `space` are lost: somebody has raised the MTU. Raises
        `DeviceError` when somebody has deleted the interface, of which no event would tell again.
        """
        while True:
            try:
                length = os.readv(self.descriptor, (space, self.beyond))
            except OSError as error:
                if error.errno == errno.EBADFD:
                    raise DeviceError(f"interface {self.name} was deleted") from error
                return 0
            if length <= len(space):
                return length

    def write(self, frame: memoryview) -> bool:
        """Give the kernel a frame; False when it does not take it, as while it is down."""
        try:
            os.write(self.descriptor, frame)
        except OSError:
            return False
        return True

    def set_carrier(self, up: bool) -> None:
        """Whether the kernel sees somebody at the other end."""
        with contextlib.suppress(OSError):  # it goes away with its network namespace
            fcntl.ioctl(self.descriptor, _TUNSETCARRIER, struct.pack("i", up))

    def has_address(self, gid: bytes) -> bool:
        """Whether the IP address of a GID is one of the interface's."""
        return gid in addresses_of(self.name)

    def close(self) -> None:
        os.close(self.descriptor)


def _internet(address: ipaddress.IPv4Address) -> bytes:
    return struct.pack("=HH4s", socket.AF_INET, 0, address.packed)


def _need_tun() -> None:
    """Load the kernel's module unless it is there; raises `OSError` with ENODEV."""
    if not os.path.exists(DEVICE):
        subprocess.run(["modprobe", "tun"], check=False, capture_output=True)
    if not os.path.exists(DEVICE):
        raise OSError(errno.ENODEV, f"{DEVICE} does not exist: load the kernel module tun")


class Interface:
    """`Network` of an engine; its methods are called under the lock of the engine's service."""

    def __init__(self, port: Tap, frame_bytes: int, frame_count: int) -> None:
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
        self._delivered = True
        if self.port.write(frame):
            self.received_bytes += len(frame)
        else:
            self.refused += 1

    def set_carrier(self, up: bool) -> None:
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

    def counters(self) -> str:
        """Return the counts of frames that have crossed, in one line."""
        if self._ethernet is None:
            return f"{self.port.name}: not connected to a device"
        sender, receiver = self._ethernet.sender, self._ethernet.receiver
        return (
            f"{self.port.name}: sent {sender.frames} frames ({self.sent_bytes} bytes) in "
            f"{sender.bursts} bursts, {sender.dropped} dropped; received {receiver.frames} "
            f"({self.received_bytes} bytes), {receiver.dropped + self.refused} dropped"
        )
