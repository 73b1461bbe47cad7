"""Runs in a guest: random bytes over TCP, and the checksum of them at both ends.

    python3 in_guest_stream.py receive PORT
    python3 in_guest_stream.py send ADDRESS PORT MIB

Both print the number of bytes and their BLAKE2 checksum.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys

PIECE = 1 << 20


def receive(port: int) -> None:
    """Serve one connection to its end."""
    with socket.create_server(("", port)) as server:
        connection, _ = server.accept()
    found, count = hashlib.blake2b(), 0
    with connection:
        while piece := connection.recv(PIECE):
            found.update(piece)
            count += len(piece)
    print(count, found.hexdigest())


def send(address: str, port: int, mib: int) -> None:
    """Send random bytes and end the stream."""
    sent = hashlib.blake2b()
    with socket.create_connection((address, port)) as connection:
        for _ in range(mib):
            piece = os.urandom(PIECE)
            sent.update(piece)
            connection.sendall(piece)
    print(mib * PIECE, sent.hexdigest())


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(int(sys.argv[2]))
    else:
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
