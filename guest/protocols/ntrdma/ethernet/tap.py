"""A TAP interface of the kernel: Ethernet frames by read and write (drivers/net/tun.c)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import socket
import struct
import subprocess
from array import array
from pathlib import Path

from bluebridge.device.layout.net.roce import ip_gid, ipv4_gid, ipv4_number
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.protocols.ntrdma.ethernet.interface import EthernetOptions

_SIOCGIFCONF = 0x8912
_NAME_BYTES = 16
_ENTRY_BYTES = 40
"""struct ifreq of a 64-bit kernel (include/uapi/linux/if.h): the name, then a sockaddr_in."""
_IP_OFFSET = _NAME_BYTES + 4
_MOST = 256
_IPV6 = Path("/proc/net/if_inet6")


def mac_of(gid: bytes) -> bytes:
    """Return the MAC address of the interface over NTRDMA that has the IP address of a GID."""
    return (b"\x02\x00" if ipv4_number(gid) else b"\x02\x06") + gid[-4:]


def addresses_of(name: str) -> set[bytes]:
    """Return the GIDs of all IP addresses of an interface; none without such an interface."""
    return _ipv4_of(name) | (parse6(_IPV6.read_text(), name) if _IPV6.exists() else set())


def parse6(lines: str, name: str) -> set[bytes]:
    """Return one interface's addresses in the lines of /proc/net/if_inet6."""
    rows = [line.split() for line in lines.splitlines()]
    return {bytes.fromhex(row[0]) for row in rows if row[-1] == name}


def _ipv4_of(name: str) -> set[bytes]:
    entries = array("B", bytes(_MOST * _ENTRY_BYTES))
    request = struct.pack("iP", len(entries), entries.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, _SIOCGIFCONF, request)
    (length,) = struct.unpack_from("i", answer)
    return parse(bytes(entries[:length]), name)


def parse(entries: bytes, name: str) -> set[bytes]:
    """Return one interface's addresses in the answer of SIOCGIFCONF, those of `name:LABEL`, too."""
    found = set()
    for start in range(0, len(entries), _ENTRY_BYTES):
        entry = entries[start : start + _ENTRY_BYTES]
        label = entry[:_NAME_BYTES].partition(b"\0")[0].decode()
        if label.partition(":")[0] == name:
            found.add(ipv4_gid(entry[_IP_OFFSET : _IP_OFFSET + 4]))
    return found


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
        """Readable when the kernel wants to send a frame."""
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
        """Remove the interface."""
        os.close(self.descriptor)


def _internet(address: ipaddress.IPv4Address) -> bytes:
    return struct.pack("=HH4s", socket.AF_INET, 0, address.packed)


def _need_tun() -> None:
    """Load the kernel's module unless it is there; raises `OSError` with ENODEV."""
    if not os.path.exists(DEVICE):
        subprocess.run(["modprobe", "tun"], check=False, capture_output=True)
    if not os.path.exists(DEVICE):
        raise OSError(errno.ENODEV, f"{DEVICE} does not exist: load the kernel module tun")
