"""RNBD messages as tuples, packed and parsed by the tables of `device.layout.net.rnbd`.

Everything a peer sends is checked here for its length; values are checked by who uses them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from bluebridge.device.layout.net import rnbd
from bluebridge.device.layout.net.rnbd import AccessMode, MessageType

# The one message that each request carries, once more as a format: packed by the table it would
# cost ten times as much.
_IO = struct.Struct("<HxxIQIIH6x")
_IO_WITHOUT_PRIORITY = struct.Struct("<HxxIQII")
"""The format of the IO message of version 1, which a server takes, too."""
_TYPE = struct.Struct("<H")


class MessageError(ValueError):
    """A message of the peer is too short or has a wrong value."""


class IoMessage(NamedTuple):
    """One request of the block layer: `rw` has operation and flags, `size` is in bytes."""

    device: int
    sector: int
    rw: int
    size: int

    @property
    def operation(self) -> int:
        """The operation: one of `rnbd.Operation` if the peer keeps to the protocol."""
        return self.rw & rnbd.OPERATION_MASK


class Geometry(NamedTuple):
    """The sizes that a server tells of a device: sectors of 512 bytes, sizes of blocks in bytes."""

    sectors: int
    max_hw_sectors: int = 0
    max_write_zeroes_sectors: int = 0
    max_discard_sectors: int = 0
    discard_granularity: int = 0
    discard_alignment: int = 0
    physical_block_size: int = 512
    logical_block_size: int = 512
    max_segments: int = 0
    secure_discard: int = 0
    cache_policy: int = 0


def message_type(message: bytes) -> int:
    """Return the type of a message, its first 16 bits; raises `MessageError`."""
    if len(message) < rnbd.HEADER.size:
        raise MessageError(f"a message of {len(message)} bytes")
    return int(_TYPE.unpack_from(message)[0])


def pack_io(device: int, sector: int, rw: int, size: int, priority: int = 0) -> bytes:
    """Pack an IO message."""
    return _IO.pack(MessageType.IO, device, sector, rw, size, priority)


def parse_io(message: bytes) -> IoMessage:
    """Parse an IO message, with or without a priority; raises `MessageError`."""
    if len(message) < _IO_WITHOUT_PRIORITY.size:
        raise MessageError(f"an I/O message of {len(message)} bytes")
    return IoMessage(*_IO_WITHOUT_PRIORITY.unpack_from(message)[1:])


def pack_session(kind: MessageType, version: int) -> bytes:
    """Pack SESS_INFO or its answer."""
    return bytes(rnbd.SESS_INFO.pack(type=kind, ver=version))


def parse_session(message: bytes, kind: MessageType) -> int:
    """Return the version in SESS_INFO or in its answer; raises `MessageError`."""
    _expect(message, kind, rnbd.SESS_INFO.size)
    return rnbd.SESS_INFO.get(message, "ver")


def pack_open(name: str, access: AccessMode) -> bytes:
    """Pack OPEN; raises `ValueError` for a name that does not fit."""
    raw = name.encode()
    if not raw or len(raw) >= rnbd.NAME_BYTES or 0 in raw:
        raise ValueError(f"the name of a device has 1 to {rnbd.NAME_BYTES - 1} bytes")
    padded = raw.ljust(rnbd.NAME_BYTES, b"\0")
    return bytes(rnbd.OPEN.pack(type=MessageType.OPEN, access_mode=access, dev_name=padded))


def parse_open(message: bytes) -> tuple[str, int]:
    """Return name and access mode, maybe not of `AccessMode`, in OPEN; raises `MessageError`."""
    _expect(message, MessageType.OPEN, rnbd.OPEN.size)
    name, found, _ = rnbd.OPEN.get_raw(message, "dev_name").partition(b"\0")
    if not found:
        raise MessageError("a name without an end")
    return name.decode(errors="surrogateescape"), rnbd.OPEN.get(message, "access_mode")


def pack_opened(device: int, geometry: Geometry) -> bytes:
    """Pack OPEN_RSP."""
    values = geometry._asdict()
    sectors = values.pop("sectors")
    kind = MessageType.OPEN_RSP
    return bytes(rnbd.OPEN_RSP.pack(values, type=kind, device_id=device, nsectors=sectors))


def parse_opened(message: bytes) -> tuple[int, Geometry]:
    """Return device number and geometry in OPEN_RSP; raises `MessageError`."""
    _expect(message, MessageType.OPEN_RSP, rnbd.OPEN_RSP.size)
    values = {item.name: rnbd.OPEN_RSP.get(message, item.name) for item in rnbd.OPEN_RSP}
    wanted = {name: values[name] for name in Geometry._fields if name in values}
    return values["device_id"], Geometry(sectors=values["nsectors"], **wanted)


def pack_close(device: int) -> bytes:
    """Pack CLOSE."""
    return bytes(rnbd.CLOSE.pack(type=MessageType.CLOSE, device_id=device))


def parse_close(message: bytes) -> int:
    """Return the number of the device in CLOSE; raises `MessageError`."""
    _expect(message, MessageType.CLOSE, rnbd.CLOSE.size)
    return rnbd.CLOSE.get(message, "device_id")


def _expect(message: bytes, kind: MessageType, size: int) -> None:
    """Raise `MessageError` unless the message has a type and a length."""
    if len(message) < size or message_type(message) != kind:
        raise MessageError(f"{len(message)} bytes are no {kind.name}")
