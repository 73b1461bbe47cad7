"""Rows that describe memory regions and memory windows."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.mlx4.memory.protection_table import ProtectionTable
from bluebridge.device.rdma.memory.region import MemoryRegion
from bluebridge.device.rdma.memory.regions import MemoryRegions
from bluebridge.device.show.table import Row


class RegionTable:
    """The memory protection table (MPT) of an HCA.

    Its entries are numbered by index; software knows a region by its key.
    """

    def __init__(self, regions: MemoryRegions, table: ProtectionTable) -> None:
        self._regions = regions
        self._table = table

    def numbers(self) -> Sequence[int]:
        """Return all indices."""
        return self._regions.numbers()

    def find(self, number: int) -> int | None:
        """Return the index for a key.

        The low byte of the key is ignored, since it changes with each use.
        """
        region = self._regions.find(number)
        return None if region is None else region.index

    def row(self, number: int) -> Row | None:
        """Return the present values of an entry; `entry` is the entry as software wrote it."""
        region = self._regions.get(number)
        return None if region is None else _row(region, self._table.query(number))


def _row(region: MemoryRegion, entry: bytes) -> Row:
    parent = region.parent
    return {
        "lkey": region.key,
        "entry": entry.hex(),
        "window": region.window,
        "second_type": region.second_type,
        "fast": region.fast,
        "physical": region.physical,
        "free": region.free,
        "iova": region.start,
        "length": region.length,
        "rights": region.rights,
        "pd": region.pd,
        "page_shift": region.page_shift,
        "pieces": region.pieces,
        "windows": region.windows,
        "parent": None if parent is None else parent.key,
        "qpn": region.owner_qpn,
    }
