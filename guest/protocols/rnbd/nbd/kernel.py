"""Block devices of the kernel's nbd module: made, resized and ended by netlink."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from bluebridge.device.layout.net.rnbd import SECTOR, AccessMode, CachePolicy
from bluebridge.guest.protocols.rnbd.engine.messages import Geometry
from bluebridge.guest.protocols.rnbd.nbd.stream import ServerFlag

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

FAMILY = "nbd"
_CONNECT, _DISCONNECT, _RECONFIGURE = 1, 2, 3
_INDEX, _SIZE_BYTES, _BLOCK_SIZE, _SERVER_FLAGS, _SOCKETS = 1, 2, 3, 5, 7
_SOCKET_ITEM, _SOCKET_FD = 1, 1
_BUFFER = 4 << 20
_SYS = Path("/sys/block")
_SEND_BUFFERS = (32, socket.SO_SNDBUF)
"""SO_SNDBUFFORCE, which may exceed the system's bound, and the option without that right."""
_RECEIVE_BUFFERS = (33, socket.SO_RCVBUF)
_u32 = struct.Struct("=I").pack
_u64 = struct.Struct("=Q").pack


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


def load_module() -> None:
    """Load nbd unless it is there; raises `OSError` with ENODEV."""
    if not (_SYS / "nbd0").exists():
        subprocess.run(["modprobe", "nbd"], check=False, capture_output=True)
    if not (_SYS / "nbd0").exists():
        raise OSError(errno.ENODEV, "the kernel has no module nbd: run `modprobe nbd`")


def flags_of(geometry: Geometry, access: AccessMode) -> ServerFlag:
    """Return the flags that tell the kernel which requests a device takes."""
    flags = ServerFlag.HAS_FLAGS
    if access == AccessMode.RO:
        flags |= ServerFlag.READ_ONLY
    if geometry.cache_policy & CachePolicy.WRITEBACK:
        flags |= ServerFlag.SEND_FLUSH
        if geometry.cache_policy & CachePolicy.FUA:
            flags |= ServerFlag.SEND_FUA
    if geometry.max_discard_sectors:
        flags |= ServerFlag.SEND_TRIM
    if geometry.max_write_zeroes_sectors:
        flags |= ServerFlag.SEND_WRITE_ZEROES
    return flags


class KernelDevice:
    """The block device /dev/nbd`index`; `connection` is this program's end of its socket."""

    def __init__(self, index: int, connection: socket.socket, block_size: int) -> None:
        self.index = index
        self.connection = connection
        self._block_size = block_size

    @property
    def path(self) -> str:
        """The path of the block device in /dev."""
        return f"/dev/nbd{self.index}"

    def resize(self, sectors: int) -> None:
        """Change its size in a thread, since the kernel waits for the requests in flight."""
        threading.Thread(target=self._resize, args=(sectors,), daemon=True).start()

    def disconnect(self) -> None:
        """End the device, so that requests in flight fail; raises `OSError`."""
        with GenericNetlink(FAMILY) as netlink:
            netlink.ask(_DISCONNECT, {_INDEX: _u32(self.index)})

    def _resize(self, sectors: int) -> None:
        with GenericNetlink(FAMILY) as netlink:
            netlink.ask(
                _RECONFIGURE,
                {
                    _INDEX: _u32(self.index),
                    _SIZE_BYTES: _u64(sectors * SECTOR),
                    _BLOCK_SIZE: _u64(self._block_size),
                },
            )


def connect(geometry: Geometry, access: AccessMode, max_io_size: int) -> KernelDevice:
    """Make a device of the first index that is free; raises `OSError`.

    The kernel asks for at most `max_io_size` bytes at a time.
    """
    load_module()
    for index in itertools.count():
        if (_SYS / f"nbd{index}/pid").exists():
            continue
        largest = _SYS / f"nbd{index}/queue/max_sectors_kb"
        if largest.exists():  # set while the device does nothing
            largest.write_text(f"{max_io_size >> 10}\n")
        try:
            return _connect(index, geometry, access)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
    raise AssertionError


def _connect(index: int, geometry: Geometry, access: AccessMode) -> KernelDevice:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    item = pack_attributes({_SOCKET_FD: _u32(theirs.fileno())})
    try:
        for end in (ours, theirs):
            for forced, plain in (_SEND_BUFFERS, _RECEIVE_BUFFERS):
                try:
                    end.setsockopt(socket.SOL_SOCKET, forced, _BUFFER)
                except PermissionError:
                    end.setsockopt(socket.SOL_SOCKET, plain, _BUFFER)
        with GenericNetlink(FAMILY) as netlink:
            netlink.ask(
                _CONNECT,
                {
                    _INDEX: _u32(index),
                    _SIZE_BYTES: _u64(geometry.sectors * SECTOR),
                    _BLOCK_SIZE: _u64(geometry.logical_block_size),
                    _SERVER_FLAGS: _u64(flags_of(geometry, access)),
                    nested(_SOCKETS): pack_attributes({nested(_SOCKET_ITEM): item}),
                },
            )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return KernelDevice(index, ours, geometry.logical_block_size)
