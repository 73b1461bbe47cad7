"""Collects events as packed records until they are written to the log's file.

Two classes do the same: `Records` with `struct`, and `NativeRecords`
(`bluebridge.device.buslog.native_packing`), which is only faster as compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from time import monotonic_ns
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.buslog.record import HEAD, RECORD
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.pieces import Run

CAPTURE: Final = 64
"""Bytes of an event's data that are kept by default."""
WINDOW_CAPTURE: Final = 4096
"""Bytes that are kept, at least, of an access through a bridge's window.

It may be the protocol of two drivers, such as up to 16 commands of NTRDMA in one store.
"""

_WIRE: Final = int(Kind.WIRE)
_ADDRESS: Final = 16
_WORK: Final = RECORD.size - 8
"""Offset of `work` in the head of a record; `_ADDRESS` is that of the address."""
_pack_event: Final = RECORD.pack
_pack_message: Final = Struct(RECORD.format + HEAD.format.removeprefix("<")).pack


class Records:
    """Records (`bluebridge.device.buslog.record`) in the order they were noted.

    `count` is their number, `first` the monotonic time of the first, in ns.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first = 0
        self._packed = bytearray()

    def event(
        self,
        device: int,
        kind: int,
        bar: int,
        what: int,
        obj: int,
        address: int,
        length: int,
        work: int,
        data: bytes,
    ) -> None:
        """Record an event at the present time, with all of `data`."""
        when = self._noted()
        self._packed += (
            _pack_event(when, device, kind, bar, what, obj, address, length, len(data), work) + data
        )

    def message(
        self,
        device: int,
        what: int,
        target_qpn: int,
        address: int,
        length: int,
        work: int,
        flags: int,
        op: int,
        syndrome: int,
        source_qpn: int,
        psn: int,
        packets: int,
        key: int,
        immediate: int,
        before: bytes,
        payload: bytes,
    ) -> None:
        """Record a message that leaves a port: `HEAD`, the bytes of `before`, the payload."""
        kept = HEAD.size + len(before) + len(payload)
        self._packed += b"".join((
            _pack_message(
                self._noted(), device, _WIRE, 0, what, target_qpn, address, length, kept, work,
                flags, op, syndrome, source_qpn, psn, packets, key, immediate,
            ),
            before,
            payload,
        ))  # fmt: skip

    def transfers(
        self,
        device: int,
        kind: int,
        runs: Sequence[Run],
        views: Sequence[memoryview],
        count: int,
        most: int,
        what: int,
        obj: int,
        work: int,
    ) -> None:
        """Record an event for each of the first `count` runs, with `most` bytes of `views` each."""
        if count:
            head = _pack_event(self._noted(count), device, kind, 0, what, obj, 0, 0, 0, work)
            self._add(pieces.pack(runs, views, count, most, head[:_ADDRESS], head[_WORK:]))

    def size(self) -> int:
        """Return the bytes of records that `take` has not returned yet."""
        return len(self._packed)

    def take(self) -> bytes:
        """Return all records collected since the last call, in order."""
        taken = bytes(self._packed)
        self._packed.clear()
        self.count = 0
        return taken

    def _add(self, packed: bytes) -> None:
        self._packed += packed

    def _noted(self, events: int = 1) -> int:
        when = monotonic_ns()
        if not self.count:
            self.first = when
        self.count += events
        return when
