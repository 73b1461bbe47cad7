"""Tables of the opcodes and flags that posting needs, computed once (ib/qp.c: mlx4_ib_opcode)."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.wqe import CQE_REQUEST, FENCE, OWNER, SOLICITED, STRONG_ORDER
from bluebridge.guest.drivers.bus.byte_order import swap32
from bluebridge.guest.drivers.hca.posting import wqe
from bluebridge.guest.drivers.hca.posting.gsi import GsiPosting
from bluebridge.guest.verbs.enums import QpType, SendFlags, WrOpcode

INVALID = swap32(OWNER)  # what every slot holds before its first use
_BUILDERS = {QpType.RC: wqe.CONNECTED, QpType.UC: wqe.UNRELIABLE, QpType.RAW_ETH: wqe.RAW}
"""The builders of opcodes that need no more than the entry."""
# Bytes before the data segments; the inline headers and the ICRC of QP1 included.
OVERHEAD = {QpType.RC: 64, QpType.UC: 64, QpType.UD: 64, QpType.GSI: 128, QpType.RAW_ETH: 16}
# What the last dword of the control segment holds.
NOTHING: Final = 0
IMMEDIATE: Final = 1
RKEY: Final = 2
_LAST_WORD: dict[int, int] = {
    WrOpcode.SEND_WITH_IMM: IMMEDIATE,
    WrOpcode.RDMA_WRITE_WITH_IMM: IMMEDIATE,
    WrOpcode.SEND_WITH_INV: RKEY,
}
_STRONG = frozenset((WrOpcode.REG_MR, WrOpcode.LOCAL_INV))


class Operation:
    """One opcode of verbs in the form that posting needs.

    `valid0` and `valid1` are the first dword of the entry, which makes it valid, for both values of
    the ownership bit, in the byte order of memory. `flags` is the third dword, `last_kind` says
    what the last one holds.
    """

    __slots__ = ("builder", "flags", "last_kind", "valid0", "valid1")

    def __init__(self, builder: wqe.Builder, code: int, flags: int, last_kind: int) -> None:
        self.builder = builder
        self.valid0, self.valid1 = swap32(code), swap32(code | OWNER)
        self.flags = flags
        self.last_kind = last_kind


def _flag_words() -> tuple[tuple[int, int], ...]:
    """Return size and flag bits for each combination of SendFlags: one lookup per work request."""
    words = []
    for flags in range(16):
        word = CQE_REQUEST if flags & SendFlags.SIGNALED else 0
        word |= SOLICITED if flags & SendFlags.SOLICITED else 0
        words.append((FENCE if flags & SendFlags.FENCE else 0, word))
    return tuple(words)


FLAGS = _flag_words()


def builders_of(
    kind: QpType, pdn: int, port: int, gsi: GsiPosting | None
) -> dict[int, wqe.Builder]:
    """Return the builders by opcode for a queue pair of domain `pdn` on `port`.

    `gsi` is given for QP1 only.
    """
    if gsi is not None:
        return gsi.builders
    return wqe.datagram(pdn, port) if kind is QpType.UD else _BUILDERS[kind]


def operations(
    kind: QpType, builders: dict[int, wqe.Builder], signal_all: bool
) -> dict[int, Operation]:
    """Return the `Operation` of each opcode that a queue pair of this kind takes."""
    always = CQE_REQUEST if signal_all else 0
    if kind is QpType.RAW_ETH:
        always |= SOLICITED  # of Ethernet frames: no ICRC at the end
    table: dict[int, Operation] = {}
    for opcode, builder in builders.items():
        code = wqe.OPCODES[opcode]
        last = _LAST_WORD.get(opcode, NOTHING)
        flags = always | (STRONG_ORDER if opcode in _STRONG else 0)
        table[opcode] = Operation(builder, int(code), flags, last)
    return table
