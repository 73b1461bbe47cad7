"""The IPv4 addresses of a network interface, and the MAC address that belongs to each."""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array

_SIOCGIFCONF = 0x8912
_NAME_BYTES = 16
_ENTRY_BYTES = 40
"""struct ifreq of a 64-bit kernel (include/uapi/linux/if.h): the name, then a sockaddr_in."""
_IP_OFFSET = _NAME_BYTES + 4
_MOST = 256


def mac_of(ip: int) -> bytes:
    """Return the MAC address of the interface over NTRDMA that has an IPv4 address."""
    return b"\x02\x00" + ip.to_bytes(4, "big")


def addresses_of(name: str) -> set[int]:
    """Return all IPv4 addresses of an interface, as numbers; none without such an interface."""
    entries = array("B", bytes(_MOST * _ENTRY_BYTES))
    request = struct.pack("iP", len(entries), entries.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, _SIOCGIFCONF, request)
    (length,) = struct.unpack_from("i", answer)
    return parse(bytes(entries[:length]), name)


def parse(entries: bytes, name: str) -> set[int]:
    """Return one interface's addresses in the answer of SIOCGIFCONF, those of `name:LABEL`, too."""
    found = set()
    for start in range(0, len(entries), _ENTRY_BYTES):
        entry = entries[start : start + _ENTRY_BYTES]
        label = entry[:_NAME_BYTES].partition(b"\0")[0].decode()
        if label.partition(":")[0] == name:
            found.add(int.from_bytes(entry[_IP_OFFSET : _IP_OFFSET + 4], "big"))
    return found
