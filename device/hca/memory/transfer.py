"""Moving message bytes: once, from the views of one guest's memory to those of another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.pci.bus import HostBus, Run

TAIL: Final = 8
"""How many bytes of a message are stored on their own, after all others."""

NOTED: Final = 64
"""How many bytes of a transfer go into the log."""

NOTED_RUNS: Final = 256
"""How many runs of a message are logged one by one; guests may cut it into as many as they like."""


def copy_views(destination: Sequence[memoryview], source: Sequence[memoryview]) -> int:
    """Copy all of `source` into `destination`, whose boundaries may differ, and count the bytes.

    Ascending, and the last bytes by a store of their own: receivers of an RDMA WRITE poll them,
    and the C library copies long blocks in an order of its liking. Raises `ValueError` before a
    byte moves when the destination is too short.
    """
    if len(destination) == 1 and len(source) == 1:
        target, origin = destination[0], source[0]
        length = origin.nbytes
        if length > target.nbytes:
            raise ValueError(f"{length} bytes do not fit in {target.nbytes}")
        _store(target, 0, origin, 0, length, last=True)
        return length
    total = sum(view.nbytes for view in source)
    room = sum(view.nbytes for view in destination)
    if total > room:
        raise ValueError(f"{total} bytes do not fit in {room}")
    _scatter(destination, source, total)
    return total


def _scatter(destination: Sequence[memoryview], source: Sequence[memoryview], left: int) -> None:
    targets = iter(destination)
    target, start = memoryview(b""), 0
    for origin in source:
        offset, length = 0, origin.nbytes
        while offset < length:
            while start == target.nbytes:
                target, start = next(targets), 0
            part = min(length - offset, target.nbytes - start)
            _store(target, start, origin, offset, part, last=part == left)
            start += part
            offset += part
            left -= part


def _store(
    target: memoryview, start: int, origin: memoryview, offset: int, length: int, *, last: bool
) -> None:
    if last and length > TAIL:
        body = length - TAIL
        target[start : start + body] = origin[offset : offset + body]
        target[start + body : start + length] = origin[offset + body : offset + length]
    else:
        target[start : start + length] = origin[offset : offset + length]


def note_runs(
    bus: HostBus,
    kind: Kind,
    runs: Sequence[Run],
    views: Sequence[memoryview],
    what: What,
    obj: int,
) -> None:
    """Log one transfer per run; `views` are those of the runs, in the same order.

    A run that crosses a border of the guest's memory regions has several views. Of very many runs
    the last ones become one transfer, as long as they are together, behind a line that says so.
    """
    rest = iter(views)
    single = runs if len(runs) <= NOTED_RUNS else runs[:NOTED_RUNS]
    for address, length in single:
        view = next(rest)
        if view.nbytes == length:
            kept = view if length <= NOTED else view[:NOTED]  # a slice costs more than a look
            bus.note_dma(kind, address, length, kept, what, obj)
        else:
            bus.note_dma(kind, address, length, _first_bytes(view, rest, length), what, obj)
    if single is not runs:
        _note_together(bus, kind, runs[NOTED_RUNS:], next(rest), what, obj)


def _note_together(
    bus: HostBus, kind: Kind, runs: Sequence[Run], view: memoryview, what: What, obj: int
) -> None:
    """Log `runs`, the first of which begins with `view`, as one transfer from its address."""
    address, total = runs[0][0], sum(length for _, length in runs)
    bus.note(
        Kind.NOTE,
        f"QP {obj:#x}: {NOTED_RUNS + len(runs)} pieces of memory; the next transfer stands for "
        f"the last {len(runs)}, {total} bytes of which only {runs[0][1]} are at its address",
        address,
        obj,
    )
    bus.note_dma(kind, address, total, view[:NOTED], what, obj)


def _first_bytes(view: memoryview, rest: Iterator[memoryview], length: int) -> bytes:
    """What the log keeps of a run whose first view is `view`; takes its others off `rest`."""
    data = bytes(view[:NOTED])
    length -= view.nbytes
    while length > 0:
        view = next(rest)
        data += view[: NOTED - len(data)]
        length -= view.nbytes
    return data
