"""An address and files for a guest that firmware boots over the network: DHCP and HTTP.

python3 -m bluebridge.guest.boot_server eth0 10.9.0.2 10.9.0.1 /srv/boot

answers on `eth0` as 10.9.0.2, gives out 10.9.0.1, and serves the files of a folder; firmware is
told to fetch `boot.ipxe`. It serves over UDP sockets, so that it works on IPoIB as well, where
busybox's udhcpd does not: that builds Ethernet headers.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address

SERVER_PORT, CLIENT_PORT, HTTP_PORT = 67, 68, 80
HEADER = struct.Struct(">4BIHH4s4s4s4s16s64s128s4s")
"""RFC 2131, figure 1: op, htype, hlen, hops, xid, secs, flags, ciaddr, yiaddr, siaddr, giaddr,
chaddr, sname, file, magic; options follow."""
MAGIC = bytes((99, 130, 83, 99))
REQUEST, REPLY = 1, 2
BROADCAST = 0x8000
PAD, END = 0, 255
MASK, LEASE, TYPE, SERVER, IPXE = 1, 51, 53, 54, 175
"""Options of RFC 2132, and iPXE's own."""
DISCOVER, OFFER, WANT, ACK = 1, 2, 3, 5
ANSWERS = {DISCOVER: OFFER, WANT: ACK}
NO_PROXY = bytes((176, 1, 1))
"""The value of option 175 by which iPXE need not wait for another server."""
LEASE_SECONDS = 86400
LONGEST = 1500


def message_type(options: bytes) -> int:
    """Return the DHCP message type of a request's options, 0 without one."""
    position = 0
    while position < len(options) and options[position] != END:
        if options[position] == PAD:
            position += 1
            continue
        if position + 2 > len(options):
            return 0
        size = options[position + 1]
        if options[position] == TYPE and size == 1 and position + 2 < len(options):
            return options[position + 2]
        position += 2 + size
    return 0


def answer(request: bytes, server: IPv4Address, client: IPv4Address) -> bytes | None:
    """Return the answer to a DHCP request, always the same address and boot file, or None."""
    if len(request) < HEADER.size:
        return None
    op, kind, size, _, xid, _, _, own, *_, hardware, _, _, magic = HEADER.unpack_from(request)
    answered = ANSWERS.get(message_type(request[HEADER.size :]))
    if op != REQUEST or magic != MAGIC or answered is None:
        return None
    url = f"http://{server}/boot.ipxe".encode()
    addresses = own, client.packed, server.packed, bytes(4)
    header = HEADER.pack(
        REPLY, kind, size, 0, xid, 0, BROADCAST, *addresses, hardware, b"", url, MAGIC
    )
    options = (
        (TYPE, bytes((answered,))),
        (SERVER, server.packed),
        (LEASE, LEASE_SECONDS.to_bytes(4, "big")),
        (MASK, bytes((255, 255, 255, 0))),
        (IPXE, NO_PROXY),
    )
    packed = b"".join(bytes((code, len(value))) + value for code, value in options)
    return header + packed + bytes((END,))


def serve_addresses(interface: str, server: IPv4Address, client: IPv4Address) -> None:
    """Answer DHCP requests by broadcasts, without end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        endpoint.bind(("", SERVER_PORT))
        print("ready", flush=True)
        while True:
            reply = answer(endpoint.recv(LONGEST), server, client)
            if reply is not None:
                endpoint.sendto(reply, ("255.255.255.255", CLIENT_PORT))


def main(interface: str, server: str, client: str, folder: str) -> None:
    """Serve until a signal."""
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    files = ThreadingHTTPServer((server, HTTP_PORT), handler)
    threading.Thread(target=files.serve_forever, daemon=True).start()
    serve_addresses(interface, IPv4Address(server), IPv4Address(client))


if __name__ == "__main__":
    main(*sys.argv[1:5])
