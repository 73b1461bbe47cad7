"""The scatter and gather lists of work requests: checked as a whole, then mapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bluebridge.device.hca.memory.regions import Rights
from bluebridge.device.hca.memory.transfer import note_runs
from bluebridge.device.hca.rings.work_requests import Sge
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.pci.bus import Run

if TYPE_CHECKING:
    from bluebridge.device.hca.queue_pairs import QueuePair

READ = int(Rights.LOCAL_READ)
WRITE = int(Rights.LOCAL_WRITE)


def gather(
    qp: QueuePair, parts: Sequence[Sge | bytes], *, note: bool, what: What = What.PAYLOAD
) -> list[memoryview]:
    """Views of what a send moves, inline data included; `note` logs the DMA reads.

    Raises `AccessError` or `DmaError` before anything is logged.
    """
    resolve, pd, reserved = qp.hca.regions.resolve, qp.pd, qp.reserved_lkey
    runs: list[Run] = []
    inline: list[tuple[int, bytes]] = []  # how many runs come before it
    for part in parts:
        if isinstance(part, bytes):
            inline.append((len(runs), part))
        else:
            lkey, address, length = part
            runs += resolve(lkey, address, length, READ, pd, reserved_lkey_ok=reserved)
    views = qp.hca.bus.views(runs) if runs else []
    if note:
        note_runs(qp.hca.bus, Kind.DMA_READ, runs, views, what, qp.qpn)
    for shift, (position, data) in enumerate(inline):
        views.insert(position + shift, memoryview(data))
    return views


def scatter_runs(qp: QueuePair, sges: Sequence[Sge | bytes], length: int, pd: int) -> list[Run]:
    """Where the first `length` bytes of a scatter list go: no more than that is looked at.

    The caller knows that the list is long enough and, if it belongs to a send queue, without
    inline parts: `parse_connected` refuses those. Raises `AccessError`.
    """
    resolve, reserved = qp.hca.regions.resolve, qp.reserved_lkey
    runs: list[Run] = []
    for sge in sges:
        if not length:
            break
        if isinstance(sge, bytes):
            continue
        lkey, address, part = sge
        part = min(part, length)
        runs += resolve(lkey, address, part, WRITE, pd, reserved_lkey_ok=reserved)
        length -= part
    return runs
