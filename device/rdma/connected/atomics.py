"""Arithmetic of the atomic operations, on unsigned 64-bit integers."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.net.roce import Op

MASK: Final = (1 << 64) - 1


def operate(op: Op, value: int, operands: tuple[int, int, int, int]) -> int:
    """Return the number that an atomic leaves in memory that held `value`.

    `operands` are swap or add, compare, swap mask or field boundaries, compare mask. A set bit
    in the boundaries of a masked add is the top bit of a field: no carry leaves it (Linux
    `include/rdma/ib_verbs.h: IB_WR_MASKED_ATOMIC_FETCH_AND_ADD`).
    """
    first, compare, mask, compare_mask = operands
    if op is Op.COMPARE_SWAP:
        return first if value == compare else value
    if op is Op.FETCH_ADD:
        return (value + first) & MASK
    if op is Op.MASKED_COMPARE_SWAP:
        if (value ^ compare) & compare_mask:
            return value
        return value & ~mask & MASK | first & mask
    if op is Op.MASKED_FETCH_ADD:
        below = ~mask & MASK
        return (((value & below) + (first & below)) ^ ((value ^ first) & mask)) & MASK
    raise ValueError(f"{op!r} is no atomic")
