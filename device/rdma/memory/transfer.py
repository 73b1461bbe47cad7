"""The log records of message bytes that were copied by DMA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bluebridge.device import pieces
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.pci.bus import HostBus, Run

NOTED: Final = 64
"""Number of bytes of a transfer that the log keeps."""

NOTED_RUNS: Final = 256
"""Most runs of a message that are logged one by one; a guest may use any number of them."""


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
    bus.note(
        Kind.NOTE,
        f"QP {obj:#x}: {len(runs)} pieces of memory; the next transfer stands for the last "
        f"{len(runs) - NOTED_RUNS}, {total} bytes of which only {length} are at its address",
        address,
        obj,
    )
    bus.note_dma(kind, address, total, _view_at(views, before)[:NOTED], what, obj)


def _view_at(views: Sequence[memoryview], offset: int) -> memoryview:
    """Return the view that begins `offset` bytes behind the beginning of all of them."""
    number = 0
    while offset > 0:
        offset -= views[number].nbytes
        number += 1
    return views[number]
