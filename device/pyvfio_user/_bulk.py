"""Regions that are served past the library, for stores in bulk and for sizes it does not know.

What a guest stores into a window comes as thousands of messages of eight bytes at most. One by one
they cost the server more than they cost the guest, whose client queues them without limit, so they
are taken off the socket a buffer at a time, and neighbours are joined. And libvfio-user keeps the
size of a region in 32 bits (vfu_reg_info_t), which turns 4 GiB into nothing.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from ._gate import Gate, Verdict
from ._messages import (
    FLAG_ERROR,
    FLAG_NO_REPLY,
    HEADER,
    TYPE_MASK,
    TYPE_REPLY,
    Command,
)

BUFFER = 16384
"""Bytes looked at together: bounds the work between two looks at other sockets."""
MOST = 8192
"""Bytes of the longest access."""
_INFO = Struct("<IIIIQQ")  # argsz, flags, index, capabilities, size, offset
_SPARSE = Struct("<HHIIIQQ")  # a capability: id, version, next; areas, reserved; start, length
_SPARSE_ID = 1
_MAPPABLE, _WITH_CAPABILITIES = 4, 8
_INFO_START = Struct("<III")
_INFO_SIZE = HEADER.size + _INFO.size
_READ_WRITE = 3
_WRITE = Struct("<HHIIIQII")  # header, then offset, region and count of a region access
_unpack = _WRITE.unpack_from
_PEEK = socket.MSG_PEEK | socket.MSG_DONTWAIT
_WRITE_COMMAND = int(Command.REGION_WRITE)


class MappedFile(NamedTuple):
    """A stretch of a region that clients map: it begins at `start` in `fd` and region alike."""

    fd: int
    start: int
    length: int


RunCallback = Callable[[int, bytes, int], None]


@dataclass(frozen=True, slots=True)
class BulkRegion:
    """A region of `size` bytes: `read(offset, length)`, `write(offset, data, width of each)`.

    Neither raises, but `read` may return too little: the access then fails with EIO.
    """

    size: int
    read: Callable[[int, int], bytes]
    write: RunCallback
    file: MappedFile | None = None


class BulkGate(Gate):
    """A gate that serves such regions itself; everything else goes its usual way."""

    def __init__(
        self,
        client: socket.socket,
        mapped: Callable[[int, int], bool],
        irq_count: Callable[[int], int],
        regions: Mapping[int, BulkRegion],
    ) -> None:
        super().__init__(client, mapped, irq_count)
        self._regions = regions
        self._batch = bytearray(BUFFER)

    def look(self) -> Verdict:
        """Judge the next message, or take all the bulk writes that come first."""
        try:
            count = self._receive(self._batch, 0, _PEEK)
            taken = self._take(count) if count >= _WRITE.size else 0
            if not taken and count >= _WRITE.size:
                taken = self._answer(count)
            if taken:
                self._drop_from_socket(taken)
                self.more = False  # other sockets come first, however much is waiting here
                return Verdict.HANDLED
        except BlockingIOError:
            self.more = True
            return Verdict.IDLE
        except OSError:
            return Verdict.DROP
        return super().look()

    def _take(self, count: int) -> int:
        """Carry out the bulk writes at the start of the batch; how many bytes they were."""
        batch, regions = self._batch, self._regions
        position = 0
        start = end = width = place = -1
        parts: list[bytes] = []
        while position + 32 <= count:
            _, command, size, flags, _, offset, number, length = _unpack(batch, position)
            region = regions.get(number)
            if (
                command != _WRITE_COMMAND
                or flags != FLAG_NO_REPLY
                or region is None
                or size != 32 + length
                or position + size > count
                or offset + length > region.size
            ):
                break
            if offset != end or number != place or length != width:
                self._flush(place, start, parts, width)
                parts = []
                start, place, width = offset, number, length
            parts.append(bytes(batch[position + 32 : position + size]))
            end = offset + length
            position += size
        self._flush(place, start, parts, width)
        return position

    def _answer(self, count: int) -> int:
        """Answer a message that is about one of the regions; its bytes, 0 for another one."""
        number, command, size, flags, _, offset, index, length = _unpack(self._batch, 0)
        if flags & TYPE_MASK or size > count or size > BUFFER:
            return 0
        if command == Command.DEVICE_GET_REGION_INFO and size == _INFO_SIZE:
            space, _, index = _INFO_START.unpack_from(self._batch, HEADER.size)
            region = self._regions.get(index)
            if region is None:
                return 0
            self._describe(number, index, region, space)
            return int(size)
        region = self._regions.get(index)
        if region is None or command not in (Command.REGION_READ, Command.REGION_WRITE):
            return 0
        data = self._access(region, command, size, offset, length)
        body = None if data is None else bytes(self._batch[HEADER.size : 32]) + data
        if not flags & FLAG_NO_REPLY:
            self._reply(number, command, body)
        return int(size)

    def _describe(self, number: int, index: int, region: BulkRegion, space: int) -> None:
        """Answer DEVICE_GET_REGION_INFO. A client without `space` for all asks once more."""
        file, fds = region.file, []
        length, flags, capability = _INFO.size, _READ_WRITE, b""
        if file is not None:
            length += _SPARSE.size
            flags |= _MAPPABLE
            if space >= length:
                flags |= _WITH_CAPABILITIES
                capability = _SPARSE.pack(_SPARSE_ID, 1, 0, 1, 0, file.start, file.length)
                fds = [file.fd]
        where = _INFO.size if capability else 0
        body = _INFO.pack(length, flags, index, where, region.size, 0) + capability
        self._reply(number, Command.DEVICE_GET_REGION_INFO, body, fds)

    def _access(
        self, region: BulkRegion, command: int, size: int, offset: int, length: int
    ) -> bytes | None:
        """The data of a read, nothing for a write, None for an access that fails."""
        if not 0 < length <= MOST or offset + length > region.size:
            return None
        if command == Command.REGION_WRITE:
            if size != 32 + length:
                return None
            region.write(offset, bytes(self._batch[32:size]), length)
            return b""
        data = region.read(offset, length)
        return data if len(data) == length else None

    def _reply(
        self, number: int, command: int, body: bytes | None, fds: Sequence[int] = ()
    ) -> None:
        flags, error = (TYPE_REPLY, 0) if body is not None else (TYPE_REPLY | FLAG_ERROR, errno.EIO)
        body = body or b""
        head = HEADER.pack(number, command, HEADER.size + len(body), flags, error)
        if fds:
            socket.send_fds(self._client, [head + body], fds, socket.MSG_NOSIGNAL)
        else:
            self._client.send(head + body, socket.MSG_NOSIGNAL)

    def _flush(self, number: int, start: int, parts: list[bytes], width: int) -> None:
        if parts:
            self._regions[number].write(start, b"".join(parts), width)

    def _drop_from_socket(self, length: int) -> None:
        view = memoryview(self._batch)
        while length:
            got = self._receive(view[:length], length, socket.MSG_DONTWAIT)
            if not got:
                raise ConnectionResetError
            length -= got
