"""The scatter and gather lists of work requests, and the log's records of what moved through them.

A list is checked as a whole before it is mapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.bus import HostBus, Run
from bluebridge.device.rdma.memory.region import AbsentError, Rights
from bluebridge.device.rdma.memory.regions import MemoryRegions

NOTED: Final = 64
"""Number of bytes of a transfer that the log keeps."""

NOTED_RUNS: Final = 256
"""Most runs of a message that are logged one by one; a guest may use any number of them."""

Sge = tuple[int, int, int]
"""A scatter/gather element: lkey, virtual address, length in bytes (never 0)."""

READ: Final = int(Rights.LOCAL_READ)
WRITE: Final = int(Rights.LOCAL_WRITE)


def note_runs(
    bus: HostBus, kind: Kind, runs: Sequence[Run], views: Sequence[memoryview], what: What, obj: int
) -> None:
    """Log one transfer per run; `views` are those of the runs, in the same order.

    A run that crosses a border of the guest's memory regions has several views. Of very many runs
    the last ones become one transfer, as long as they are together, behind a line that says so.
    """
    count = len(runs)
    if count == 1 and len(views) == 1:
        address, length = runs[0]
        view = views[0]
        kept = view if length <= NOTED else view[:NOTED]  # a slice costs more than a look
        bus.note_dma(kind, address, length, kept, what, obj)
        return
    bus.note_transfers(kind, runs, views, min(count, NOTED_RUNS), NOTED, what, obj)
    if count > NOTED_RUNS:
        _note_together(bus, kind, runs, views, what, obj)


def _note_together(
    bus: HostBus, kind: Kind, runs: Sequence[Run], views: Sequence[memoryview], what: What, obj: int
) -> None:
    """Log the runs from number `NOTED_RUNS` on as one transfer from the address of the first."""
    before = sum(runs[number][1] for number in range(NOTED_RUNS))
    total = pieces.size(views) - before
    address, length = runs[NOTED_RUNS]
    bus.tell(
        Fact.SCATTERED,
        qpn=obj,
        pieces=len(runs),
        rest=len(runs) - NOTED_RUNS,
        bytes=total,
        first=length,
    )
    bus.note_dma(kind, address, total, _view_at(views, before)[:NOTED], what, obj)


def _view_at(views: Sequence[memoryview], offset: int) -> memoryview:
    """Return the view that begins `offset` bytes behind the beginning of all of them."""
    number = 0
    while offset > 0:
        offset -= views[number].nbytes
        number += 1
    return views[number]


def stretch(parts: Sequence[Sge | bytes], offset: int, length: int) -> list[Sge | bytes]:
    """Return the part of a list that holds `length` bytes from byte `offset` on."""
    found: list[Sge | bytes] = []
    for part in parts:
        size = len(part) if isinstance(part, bytes) else part[2]
        if offset >= size:
            offset -= size
            continue
        taken = min(size - offset, length)
        if isinstance(part, bytes):
            found.append(part[offset : offset + taken])
        else:
            found.append((part[0], part[1] + offset, taken))
        offset, length = 0, length - taken
        if not length:
            break
    return found


def _joined(runs: Sequence[Run], more: Sequence[Run]) -> Sequence[Run]:
    """Return the runs of several elements as one list."""
    joined = runs if isinstance(runs, list) else list(runs)
    joined.extend(more)
    return joined


class LocalMemory:
    """The memory that work requests of queue pair `qpn` in protection domain `pd` name by lkey.

    `reserved_lkey`: the queue pair may use the reserved lkey, which is all of guest memory.
    """

    def __init__(
        self, bus: HostBus, regions: MemoryRegions, pd: int, qpn: int, *, reserved_lkey: bool
    ) -> None:
        self._bus = bus
        self._resolve = regions.resolve
        self._pd = pd
        self._qpn = qpn
        self._reserved_lkey = reserved_lkey

    def gather(
        self, parts: Sequence[Sge | bytes], *, note: bool, what: What = What.PAYLOAD
    ) -> Sequence[memoryview]:
        """Return views of the bytes to send, inline data included; `note` logs the DMA reads.

        Raises `AccessError` or `DmaError` before anything is logged.
        """
        resolve, pd, reserved = self._resolve, self._pd, self._reserved_lkey
        runs: Sequence[Run] = ()
        inline: list[tuple[int, bytes]] = []  # how many runs come before it
        for part in parts:
            if isinstance(part, bytes):
                inline.append((len(runs), part))
            else:
                lkey, address, length = part
                found = resolve(lkey, address, length, READ, pd, reserved_lkey_ok=reserved)
                runs = _joined(runs, found) if runs else found
        views = self._bus.views(runs) if runs else ()
        if note:
            note_runs(self._bus, Kind.DMA_READ, runs, views, what, self._qpn)
        if not inline:
            return views
        mixed = list(views)
        for shift, (position, data) in enumerate(inline):
            mixed.insert(position + shift, memoryview(data))
        return mixed

    def scatter(
        self, sges: Sequence[Sge | bytes], length: int, pd: int | None = None
    ) -> Sequence[Run]:
        """Return the runs that the first `length` bytes of a scatter list go to, and check no more.

        `pd` is the protection domain of a receive that came from a shared receive queue. The
        caller knows that the list is long enough and, if it belongs to a send queue, without
        inline parts: `ConnectedReader` refuses those. Raises `AccessError`.
        """
        resolve, reserved = self._resolve, self._reserved_lkey
        if pd is None:
            pd = self._pd
        runs: Sequence[Run] = ()
        for sge in sges:
            if not length:
                break
            if isinstance(sge, bytes):
                continue
            lkey, address, part = sge
            part = min(part, length)
            found = resolve(lkey, address, part, WRITE, pd, reserved_lkey_ok=reserved)
            runs = _joined(runs, found) if runs else found
            length -= part
        return runs

    def store(
        self,
        parts: Sequence[Sge | bytes],
        length: int,
        payload: Sequence[memoryview | bytes],
        pd: int | None = None,
        what: What = What.PAYLOAD,
    ) -> None:
        """Copy `length` bytes into a scatter list (see `scatter`), and log the DMA writes.

        Raises `AccessError` or `DmaError` before a byte moves.
        """
        runs = self.scatter(parts, length, pd)
        if runs:
            views = self._bus.views(runs)
            pieces.copy(views, payload)
            note_runs(self._bus, Kind.DMA_WRITE, runs, views, what, self._qpn)

    def check(
        self, parts: Sequence[Sge | bytes], length: int, right: int, pd: int | None = None
    ) -> None:
        """Check the keys of the first `length` bytes of a list, at the same cost for any length.

        A key that permits the first and the last byte permits all between them. Raises
        `AccessError`; whether there is memory everywhere, or pages are absent, is not looked at.
        """
        if pd is None:
            pd = self._pd
        for part in stretch(parts, 0, length):
            if not isinstance(part, bytes):
                lkey, address, size = part
                for byte in (address, address + size - 1):
                    with suppress(AbsentError):
                        reserved = self._reserved_lkey
                        self._resolve(lkey, byte, 1, right, pd, reserved_lkey_ok=reserved)
