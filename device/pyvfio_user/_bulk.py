"""Posted writes in bulk: what a guest stores into a window comes as thousands of messages.

Each is worth eight bytes at most, and one by one, past the library, they cost the server more than
they cost the guest, whose client queues them without limit. A region that wants it has them taken
off the socket a buffer at a time, and neighbours joined.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct

from ._gate import Gate, Verdict
from ._messages import FLAG_NO_REPLY, Command

log = logging.getLogger(__name__)

BUFFER = 16384
"""Bytes looked at together: bounds the work between two looks at other sockets."""
_WRITE = Struct("<HHIIIQII")  # header, then offset, region and count of a region access
_unpack = _WRITE.unpack_from
_PEEK = socket.MSG_PEEK | socket.MSG_DONTWAIT
_WRITE_COMMAND = int(Command.REGION_WRITE)

RunCallback = Callable[[int, bytes, int], None]


@dataclass(frozen=True, slots=True)
class BulkRegion:
    """A region whose posted writes come as runs: `write(offset, data, width of each write)`."""

    size: int
    write: RunCallback


class BulkGate(Gate):
    """A gate that serves such writes itself; everything else goes its usual way."""

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
            if taken:
                self._drop_from_socket(taken)
                self.more = True
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
