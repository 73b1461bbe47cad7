"""A message filter that serves accesses to some regions itself instead of the library."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from time import monotonic
from typing import Final

from ._files import Closer
from ._message_filter import MessageFilter, Verdict
from ._regions import LINE, BulkRegion, LineStores, RegisterRegion
from .constants import (
    ACCESS,
    FLAG_ERROR,
    FLAG_NO_REPLY,
    HEADER,
    LONGEST_ACCESS,
    TYPE_MASK,
    TYPE_REPLY,
    VfioUserCommand,
)

TOGETHER: Final = 32
"""Accesses to registers that are served at most in one call."""
TOGETHER_SECONDS = 0.002
"""Seconds for which one call serves further accesses after the first one."""
_INFO: Final = Struct("<IIIIQQ")  # argsz, flags, index, capabilities, size, offset
# A capability: id, version, next; areas, reserved; start, length.
_SPARSE: Final = Struct("<HHIIIQQ")
_SPARSE_ID: Final = 1
_MAPPABLE: Final = 4
_WITH_CAPABILITIES: Final = 8
_INFO_START: Final = Struct("<III")
_INFO_SIZE: Final = HEADER.size + _INFO.size
_READ_WRITE: Final = 3
_HEAD: Final = ACCESS.size
_unpack: Final = ACCESS.unpack_from
_pack_header: Final = HEADER.pack
_SENDING: Final = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)  # a full socket never blocks
_READ: Final = int(VfioUserCommand.REGION_READ)
_WRITE: Final = int(VfioUserCommand.REGION_WRITE)


class RegionFilter(MessageFilter):
    """Serves `windows` and `registers`, both by region index; other messages go to the library.

    An index that is in both tables is a window.
    """

    def __init__(
        self,
        client: socket.socket,
        mapped: Callable[[int, int], bool],
        irq_count: Callable[[int], int],
        complain: Callable[[str], None],
        closer: Closer,
        windows: Mapping[int, BulkRegion],
        registers: Mapping[int, RegisterRegion],
    ) -> None:
        super().__init__(client, mapped, irq_count, complain, closer)
        self._windows = windows
        self._registers = {
            index: region for index, region in registers.items() if index not in windows
        }
        self._batch = self._inbox.data
        self._view = self._inbox.view
        self._served = 0  # where the messages end that are served

    def inspect(self) -> Verdict:
        """Serve all accesses to the filter's regions that come first, else check a message."""
        inbox = self._inbox
        if inbox.start == inbox.end:
            verdict = self._receive(HEADER.size, "nothing")
            if verdict is not None:
                return verdict
        while True:
            begin, end = inbox.start, inbox.end
            try:
                served = self._serve_all(begin, end)
            except OSError as error:
                if isinstance(error, BlockingIOError):
                    return self.drop("requests and took no replies")
                return Verdict.DROP
            if served:
                self._deadline = 0.0
                self.more = False  # other sockets are served first, however much is waiting here
                return Verdict.HANDLED
            verdict = self._complete()
            if verdict is not None:
                return verdict
            if inbox.end - inbox.start == end - begin:
                return self._judge()

    def _serve_all(self, begin: int, end: int) -> bool:
        """Serve the messages from `begin` to `end` of the batch; return whether there were any."""
        self._served = begin
        if end - begin < _HEAD:
            return False
        try:
            self._take(begin, end)
            if self._served == begin:
                self._answer(begin, end)
        finally:
            if self._served > begin:
                files = self._inbox.handled(self._served)
                if files:
                    self._closer.close(files)
        return self._served > begin

    def _take(self, position: int, count: int) -> None:
        """Serve the accesses from `position` to `count` of the batch.

        `_served` counts each before it is carried out, so that none is carried out twice.
        """
        batch, windows = self._batch, self._windows
        accesses = 0
        until = 0.0
        start = end = width = place = -1
        parts: list[bytes] = []
        while position + _HEAD <= count:
            window = None
            if windows:  # most functions have none: a header is unpacked once then
                _, command, size, flags, _, offset, index, length = _unpack(batch, position)
                window = windows.get(index)
            if window is None:
                self._served = position
                if parts:
                    self._flush(place, start, parts, width)
                    parts, end = [], -1
                if accesses:
                    # The clock is read from the second access on: most are alone.
                    now = monotonic()
                    until = until or now + TOGETHER_SECONDS
                    if accesses >= TOGETHER or now >= until:
                        break
                served = self._serve(position, count)
                if not served:
                    break
                accesses += served
                position = self._served
            else:
                if (
                    command != _WRITE
                    or flags != FLAG_NO_REPLY
                    or size != _HEAD + length
                    or position + size > count
                    or offset + length > window.size
                ):
                    break
                if offset != end or index != place or length != width:
                    self._served = position
                    if parts:
                        self._flush(place, start, parts, width)
                        parts = []
                    start, place, width = offset, index, length
                parts.append(bytes(batch[position + _HEAD : position + size]))
                end = offset + length
                position += size
        self._served = position
        if parts:
            self._flush(place, start, parts, width)

    def _serve(self, position: int, count: int) -> int:
        """Serve a complete, valid access to registers, with stores that continue its line.

        Returns how many accesses that were, 0 if the next message is none.
        """
        number, command, size, flags, _, offset, index, length = _unpack(self._batch, position)
        region = self._registers.get(index)
        if (
            region is None
            or not _READ <= command <= _WRITE
            or flags & TYPE_MASK
            or size != _HEAD + (length if command == _WRITE else 0)
            or position + size > count
            or not 0 < length <= LONGEST_ACCESS
            or offset + length > region.size
        ):
            return 0
        lines = region.lines
        posted = command == _WRITE and flags == FLAG_NO_REPLY
        if posted and lines is not None and offset >= lines.start:
            return self._store_line(region, lines, position, count)
        self._served = position + size
        data = b""
        body = position + _HEAD
        try:
            if command == _WRITE:
                region.write(offset, bytes(self._view[body : body + length]))
            else:
                data = bytes(region.read(offset, length))
                if len(data) != length:
                    raise ValueError(f"{len(data)} bytes were read, not {length}")
        except BaseException as raised:
            error = region.failed(raised)
            if not flags & FLAG_NO_REPLY:
                self._reply(number, command, None, error=error)
            return 1
        if not flags & FLAG_NO_REPLY:
            head = _pack_header(number, command, _HEAD + len(data), TYPE_REPLY, 0)
            where = bytes(self._view[position + HEADER.size : body])
            self._client.send(head + where + data, _SENDING)
        return 1

    def _store_line(self, region: RegisterRegion, lines: LineStores, first: int, count: int) -> int:
        """Carry out a posted store and those that follow it within its line, as one."""
        size: int
        _, _, size, _, _, offset, index, width = _unpack(self._batch, first)
        position, end = first + size, offset + width
        data = bytes(self._view[first + _HEAD : position])
        line_end = (offset | (LINE - 1)) + 1
        alike = _WRITE, size, FLAG_NO_REPLY, 0
        while end < line_end and position + size <= count:
            if _unpack(self._batch, position)[1:] != (*alike, end, index, width):
                break
            data += self._view[position + _HEAD : position + size]
            position += size
            end += width
        self._served = position
        try:
            lines.write(offset, data, width)
        except BaseException as raised:
            region.failed(raised)
        return (position - first) // size

    def _answer(self, start: int, end: int) -> None:
        """Answer the message at `start` if it is complete and about one of the windows."""
        number, command, size, flags, _, offset, index, length = _unpack(self._batch, start)
        if flags & TYPE_MASK or not _HEAD <= size <= end - start:
            return
        if command == VfioUserCommand.GET_REGION_INFO and size == _INFO_SIZE:
            space, _, index = _INFO_START.unpack_from(self._batch, start + HEADER.size)
            region = self._windows.get(index)
            if region is not None:
                self._served = start + size
                self._describe(number, index, region, space)
            return
        region = self._windows.get(index)
        if region is None or command not in (_READ, _WRITE):
            return
        self._served = start + size
        sent = bytes(self._view[start + HEADER.size : start + size])
        data = self._access(region, command, sent, offset, length)
        body = None if data is None else sent[: _HEAD - HEADER.size] + data
        if not flags & FLAG_NO_REPLY:
            self._reply(number, command, body)

    def _describe(self, number: int, index: int, region: BulkRegion, space: int) -> None:
        """Answer DEVICE_GET_REGION_INFO.

        A client without `space` for the whole answer asks once more.
        """
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
        self._reply(number, VfioUserCommand.GET_REGION_INFO, body, fds)

    def _access(
        self, region: BulkRegion, command: int, sent: bytes, offset: int, length: int
    ) -> bytes | None:
        """Return the data of a read, nothing for a write, None for an access that fails."""
        if not 0 < length <= LONGEST_ACCESS or offset + length > region.size:
            return None
        data = sent[_HEAD - HEADER.size :]
        if len(data) != (length if command == _WRITE else 0):
            return None
        if command == _WRITE:
            region.write(offset, data, length)
            return b""
        data = region.read(offset, length)
        return data if len(data) == length else None

    def _reply(
        self,
        number: int,
        command: int,
        body: bytes | None,
        fds: Sequence[int] = (),
        error: int = errno.EIO,
    ) -> None:
        """Send a reply with `body`, or one that fails the request with `error`."""
        flags, error = (TYPE_REPLY, 0) if body is not None else (TYPE_REPLY | FLAG_ERROR, error)
        body = body or b""
        head = _pack_header(number, command, HEADER.size + len(body), flags, error)
        if fds:
            socket.send_fds(self._client, [head + body], fds, _SENDING)
        else:
            self._client.send(head + body, _SENDING)

    def _flush(self, number: int, start: int, parts: list[bytes], width: int) -> None:
        self._windows[number].write(start, b"".join(parts), width)
