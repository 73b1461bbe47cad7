"""Atomics, written down once more: bit by bit (Linux `include/rdma/ib_verbs.h`)."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.wqe import SendOpcode

MASK = (1 << 64) - 1


def atomic(opcode: SendOpcode, value: int, operands: tuple[int, int, int, int]) -> int:
    """What is left of `value`: `operands` are swap or add, compare, mask of each."""
    first, compare, mask, compare_mask = operands
    if opcode is SendOpcode.ATOMIC_CS:
        return first if value == compare else value
    if opcode is SendOpcode.ATOMIC_FA:
        return (value + first) % (1 << 64)
    if opcode is SendOpcode.MASKED_ATOMIC_CS:
        if value & compare_mask != compare & compare_mask:
            return value
        return value & ~mask | first & mask
    result = carry = 0
    for bit in range(64):
        total = (value >> bit & 1) + (first >> bit & 1) + carry
        result |= (total & 1) << bit
        carry = 0 if mask >> bit & 1 else total >> 1
    return result
