"""Runs in a guest: frames with wrong checksums go to the peer, come back with right ones.

python3 in_guest_csum.py NETDEV PEER_MAC
"""

from __future__ import annotations

import socket
import struct
import sys

COUNT = 20
SOURCE, TARGET = bytes((10, 9, 0, 79)), bytes((10, 9, 0, 78))
"""Addresses that no guest has: the network drops what another port sends from one of a guest."""
WRONG = 0xBAD
IP, UDP, HEADERS = 14, 34, 42
_SECONDS = 10.0


def total(raw: bytes) -> int:
    """One's complement sum of 16-bit words; 0xFFFF over data with its checksum."""
    words = struct.unpack(f">{(len(raw) + 1) // 2}H", raw + bytes(len(raw) & 1))
    return sum(words) % 0xFFFF or 0xFFFF


def frame(target: bytes, source: bytes, number: int) -> bytes:
    """A UDP datagram whose two checksums are wrong."""
    payload = b"bluebridge csum %d" % number * 4
    size = 8 + len(payload)
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, number, 0, 64, 17, WRONG) + SOURCE + TARGET
    udp = struct.pack(">HHHH", 1000 + number, 9, size, WRONG)
    return target + source + b"\x08\0" + ip + udp + payload


def is_right(raw: bytes) -> bool:
    """Whether both checksums of a datagram are right."""
    size = int.from_bytes(raw[UDP + 4 : UDP + 6], "big")
    pseudo = raw[IP + 12 : UDP] + struct.pack(">HH", 17, size)
    return total(raw[IP:UDP]) == total(pseudo + raw[UDP : UDP + size]) == 0xFFFF


def main() -> int:
    """Exit status 0 when all came back right."""
    netdev, peer = sys.argv[1], bytes.fromhex(sys.argv[2].replace(":", ""))
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    wire.bind((netdev, 0x0800))
    wire.settimeout(_SECONDS)
    own = wire.getsockname()[4]
    back = right = 0
    for number in range(COUNT):
        wire.send(frame(peer, own, number))
        while True:
            raw = wire.recv(2048)
            if raw[:6] == own and raw[HEADERS:].startswith(b"bluebridge csum %d" % number):
                break
        back += 1
        right += is_right(raw)
    print(f"{COUNT} sent with wrong checksums, {back} came back, {right} with right ones")
    return 0 if right == COUNT else 1


if __name__ == "__main__":
    sys.exit(main())
