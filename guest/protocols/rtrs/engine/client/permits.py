"""Permits: the slots of a session that no request uses."""

from __future__ import annotations


class Permits:
    """A bit for each slot; the lowest free one is given out first, as the kernel's client does."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = (1 << count) - 1

    def get(self) -> int | None:
        """A slot, None while all are in use."""
        free = self._free
        if not free:
            return None
        lowest = free & -free
        self._free = free ^ lowest
        return lowest.bit_length() - 1

    def put(self, slot: int) -> None:
        """A slot is free again. Raises `ValueError` if it was free, or is none."""
        bit = 1 << slot
        if slot >= self.count or self._free & bit:
            raise ValueError(f"slot {slot} is not in use")
        self._free |= bit

    @property
    def in_use(self) -> int:
        """How many are given out."""
        return self.count - self._free.bit_count()
