"""The IP addresses of a network interface as GIDs, and the MAC address that belongs to each."""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array
from pathlib import Path

from bluebridge.device.layout.net.roce import ipv4_gid, ipv4_number

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
