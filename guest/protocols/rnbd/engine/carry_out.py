"""The check and execution of one I/O message of a client (rnbd-srv.c: process_rdma)."""

from __future__ import annotations

import errno
from collections.abc import Callable

from bluebridge.device.layout.net.rnbd import OPERATION_MASK, SECTOR, AccessMode, IoFlag, Operation
from bluebridge.guest.protocols.rnbd.engine.exports import OpenDevice
from bluebridge.guest.protocols.rnbd.engine.interface import Backend
from bluebridge.guest.protocols.rnbd.engine.messages import IoMessage, MessageError
from bluebridge.guest.protocols.rtrs.engine.actions import Direction

_READ = int(Operation.READ)
_WRITE = int(Operation.WRITE)
_FLUSH = int(Operation.FLUSH)
_FUA = int(IoFlag.FUA)


def carry_out(
    device: OpenDevice, message: IoMessage, direction: Direction, data: memoryview
) -> None:
    """Carry out `message`; `data` is what came with it, or the room for its answer.

    Raises `OSError`: EINVAL, EIO beyond the end, EPERM for changes through a read-only device,
    EOPNOTSUPP, and what the backend raises; and `MessageError`.
    """
    operation = message.rw & OPERATION_MASK
    backend = device.export.backend
    if operation == _FLUSH:
        # The kernel's client sends sector 2^64 - 1 with it.
        _need(not message.size and not data, "a flush with data")
        backend.flush()
        return
    size = message.size
    _need(size % SECTOR == 0, f"{size} bytes are no sectors")
    if message.sector + size // SECTOR > backend.geometry.sectors:
        raise OSError(errno.EIO, f"beyond the end of {device.name}: sector {message.sector}")
    offset = message.sector * SECTOR
    if operation == _READ:
        _need(direction == Direction.READ and len(data) == size, "data of another length")
        backend.read(offset, data)
        return
    if device.access == AccessMode.RO:
        raise OSError(errno.EPERM, f"a change of {device.name}, which is open read-only")
    if operation == _WRITE:
        _need(direction == Direction.WRITE and len(data) == size, "data of another length")
        backend.write(offset, data, fua=bool(message.rw & _FUA))
        return
    _need(not data, "data where none belongs")
    _without_data(operation)(backend, offset, message)


Change = Callable[[Backend, int, IoMessage], None]


def _without_data(operation: int) -> Change:
    """Return the function for an operation that moves no data; raises `OSError`."""
    change = _CHANGES.get(operation)
    if change is None:
        raise MessageError(f"operation {operation}")
    return change


def _discard(backend: Backend, offset: int, message: IoMessage) -> None:
    if not backend.geometry.max_discard_sectors:
        raise OSError(errno.EOPNOTSUPP, "discard")
    backend.discard(offset, message.size)


def _secure_erase(backend: Backend, offset: int, message: IoMessage) -> None:
    raise OSError(errno.EOPNOTSUPP, "secure erase")


def _write_zeroes(backend: Backend, offset: int, message: IoMessage) -> None:
    if not backend.geometry.max_write_zeroes_sectors:
        raise OSError(errno.EOPNOTSUPP, "write zeroes")
    backend.write_zeroes(offset, message.size, fua=bool(message.rw & _FUA))


_CHANGES: dict[int, Change] = {
    Operation.DISCARD: _discard,
    Operation.SECURE_ERASE: _secure_erase,
    Operation.WRITE_ZEROES: _write_zeroes,
}


def _need(condition: bool, wrong: str) -> None:
    """Raise `MessageError` with the text `wrong` unless a condition holds."""
    if not condition:
        raise MessageError(wrong)
