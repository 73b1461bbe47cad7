"""Records packed by native code, which takes 50 ns for an event including reading the clock.

Integers are written by the primitives of librt, which mypyc translates to stores. Only compiled
code uses this (`bluebridge.device.buslog.writer`): interpreted, it is three times as slow as
`Records`.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64

from bluebridge.device.buslog.packing import Records
from bluebridge.device.buslog.record import HEAD
from bluebridge.device.layout.buslog import Kind

_WIRE: Final = int(Kind.WIRE)
_HEAD_SIZE: Final = HEAD.size
_SMALL: Final = (1 << 62) - 1  # the largest that native code compares without a call
_TOP: Final = 1 << 63
_ALL: Final = 1 << 64


def _signed(value: int) -> i64:
    """Return the 64-bit two's complement of an unsigned number below 2^64."""
    if value <= _SMALL or value < _TOP:
        return i64(value)
    return i64(value - _ALL)


class NativeRecords(Records):
    """`Records` that writes the fields of `RECORD` and `HEAD` as words of 64 and 32 bits."""

    def __init__(self) -> None:
        super().__init__()
        self._writer = BytesWriter()

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
        self._record(device, kind, bar, what, obj, address, length, len(data), work)
        self._writer.write(data)

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
        kept = _HEAD_SIZE + len(before) + len(payload)
        self._record(device, _WIRE, 0, what, target_qpn, address, length, kept, work)
        writer = self._writer
        first: i64 = i64(flags) | i64(op) << 8 | i64(syndrome) << 16
        write_i64_le(writer, first | i64(source_qpn) << 32)
        write_i64_le(writer, i64(psn) | i64(packets) << 32)
        write_i64_le(writer, i64(key) | i64(immediate) << 32)
        writer.write(before)
        writer.write(payload)

    def _record(
        self,
        device: int,
        kind: int,
        bar: int,
        what: int,
        obj: int,
        address: int,
        length: int,
        kept: int,
        work: int,
    ) -> None:
        when = self._noted()
        writer = self._writer
        names: i64 = i64(device) | i64(kind) << 8 | i64(bar) << 16 | i64(what) << 24
        write_i64_le(writer, i64(when))
        write_i64_le(writer, names | i64(obj) << 32)
        write_i64_le(writer, _signed(address))
        write_i64_le(writer, i64(length) | i64(kept) << 32)
        write_i64_le(writer, _signed(work))

    def _add(self, packed: bytes) -> None:
        self._writer.write(packed)

    def size(self) -> int:
        return len(self._writer)

    def take(self) -> bytes:
        taken = self._writer.getvalue()
        self._writer.truncate(0)
        self.count = 0
        return taken
