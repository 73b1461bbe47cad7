"""The part of generic netlink that nbd needs: messages of attributes to one family."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Mapping

_HEADER = struct.Struct("=IHHII")
"""The netlink header: length, type, flags, sequence number, port."""
_COMMAND = struct.Struct("=BBH")
"""The header of generic netlink: command, version, reserved."""
_ATTRIBUTE = struct.Struct("=HH")
"""The header of an attribute: length, type; the value follows, padded to 4 bytes."""
_GENERIC = 16
_ERROR, _CONTROL_FAMILY = 2, 0x10
_GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 3, 1, 2
_REQUEST, _ACKNOWLEDGE = 1, 4
_NESTED = 0x8000
_TYPE = 0x3FFF
_ANSWER = 1 << 15

Attributes = Mapping[int, bytes]


class GenericNetlink:
    """A socket to the family `name`; raises `OSError`, ENOENT if its module is not loaded."""

    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _GENERIC)
        self._sequence = 0
        try:
            self._socket.bind((0, 0))
            found = self._ask(_CONTROL_FAMILY, _GET_FAMILY, {_FAMILY_NAME: name.encode() + b"\0"})
            self._family = int.from_bytes(found[_FAMILY_ID], "little")
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> GenericNetlink:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, command: int, attributes: Attributes) -> Attributes:
        """Send a command and return the attributes of its answer; raises `OSError`."""
        return self._ask(self._family, command, attributes)

    def _ask(self, family: int, command: int, attributes: Attributes) -> Attributes:
        self._sequence += 1
        body = _COMMAND.pack(command, 1, 0) + pack_attributes(attributes)
        size = _HEADER.size + len(body)
        flags = _REQUEST | _ACKNOWLEDGE
        self._socket.send(_HEADER.pack(size, family, flags, self._sequence, 0) + body)
        answer: Attributes = {}
        while True:
            for kind, body in _messages(self._socket.recv(_ANSWER)):
                if kind != _ERROR:
                    answer = parse_attributes(body[_COMMAND.size :])
                    continue
                (code,) = struct.unpack_from("=i", body)
                if code:
                    raise OSError(-code, os.strerror(-code))
                return answer


def _messages(data: bytes) -> list[tuple[int, bytes]]:
    """Return type and body of each message; raises `OSError` with EPROTO for malformed ones."""
    found = []
    while data:
        size, kind, *_ = _HEADER.unpack_from(data)
        if not _HEADER.size <= size <= len(data):
            raise OSError(errno.EPROTO, "a netlink message of another length")
        found.append((kind, data[_HEADER.size : size]))
        data = data[(size + 3) & ~3 :]
    return found


def pack_attributes(attributes: Attributes) -> bytes:
    """Return the attributes packed one after the other."""
    packed = b""
    for kind, value in attributes.items():
        head = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind)
        packed += head + value.ljust((len(value) + 3) & ~3, b"\0")
    return packed


def parse_attributes(data: bytes) -> dict[int, bytes]:
    """Return the attributes by type; ends at the first without a length."""
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(data)
        if size < _ATTRIBUTE.size:
            break
        found[kind & _TYPE] = data[_ATTRIBUTE.size : size]
        data = data[(size + 3) & ~3 :]
    return found


def nested(kind: int) -> int:
    """Return the type of an attribute that holds attributes."""
    return kind | _NESTED
