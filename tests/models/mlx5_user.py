"""A guest whose program sends the commands itself, with its rings in memory of a user."""

from __future__ import annotations

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx5.commands import INPUT, Opcode
from bluebridge.device.layout.mlx5.contexts import CQC, WQ, WQ_OFFSET
from bluebridge.device.layout.mlx5.objects import CONTEXT, ENTRY, LIST
from bluebridge.device.layout.mlx5.queue_pairs import QP_CONTEXT, QP_IN, QPC
from bluebridge.device.layout.mlx5.user_contexts import (
    CREATE_UCTX,
    CREATE_UMEM,
    RING_UMEM,
    UserRight,
)
from tests.models.mlx5_node import Mlx5Node
from tests.models.mlx5_pair import RoceNode

WQ_PLACE = CONTEXT + WQ_OFFSET
_WORK_QUEUE = (WQ, WQ_PLACE, WQ, WQ_PLACE, WQ_PLACE + WQ.size)
PLACES: dict[int, tuple[Struct, int, Struct, int, int]] = {
    Opcode.CREATE_CQ: (CQC, ENTRY, RING_UMEM, 0, LIST),
    Opcode.CREATE_QP: (QPC, QP_CONTEXT, QP_IN, 0, QP_IN.size),
    Opcode.CREATE_RMP: _WORK_QUEUE,
    Opcode.CREATE_SQ: _WORK_QUEUE,
    Opcode.CREATE_RQ: _WORK_QUEUE,
}
"""Tables and places of record and ring, and where the list of pages begins."""
PAGE = 4096


def make_context(node: Mlx5Node, rights: int = UserRight.RAW_SEND) -> int:
    """Make a user context for a node; its number."""
    present, node.uid = node.uid, 0
    number = node.make(Opcode.CREATE_UCTX, bytes(CREATE_UCTX.pack(rights=rights)))
    node.uid = present
    return number


def make_memory(node: Mlx5Node, pages: list[int], **values: int) -> int:
    """Make memory of a user; its number."""
    return node.make(Opcode.CREATE_UMEM, memory_input(pages, **values))


def memory_input(listed: list[int], **values: int) -> bytes:
    """The input of CREATE_UMEM."""
    head = bytes(CREATE_UMEM.pack({"pages": len(listed), **values}))
    return head + b"".join(page.to_bytes(8, "big") for page in listed)


class UserNode(RoceNode):
    """A node in a user context once `enter` was called."""

    def enter(self, rights: int = UserRight.RAW_SEND) -> None:
        """Send commands for a user context, with a protection domain of its own, from now on.

        The key to all of memory is from the driver, as are those of `ibv_reg_mr`.
        """
        uid = self.uid = make_context(self, rights)
        self.pd = self.make(Opcode.ALLOC_PD)
        self.uid = 0
        self.key = self.make_key()
        self.uid = uid

    def carry_out(self, data: bytes) -> bytes:
        places = PLACES.get(INPUT.get(data, "opcode")) if self.uid else None
        return super().carry_out(data if places is None else self._moved(data, places))

    def _moved(self, data: bytes, places: tuple[Struct, int, Struct, int, int]) -> bytes:
        """The same input with memory of a user in place of a list of pages; a page lies before."""
        table, at, rings, ring_at, list_at = places
        moved, listed = bytearray(data[:list_at]), data[list_at:]
        pages = [int.from_bytes(listed[i : i + 8], "big") for i in range(0, len(listed), 8)]
        record = table.get(data, "doorbell_record", at)
        rings.set(moved, "ring_umem_valid", 1, ring_at)
        rings.set(moved, "ring_umem", make_memory(self, [0, *pages]), ring_at)
        rings.set(moved, "ring_umem_offset", PAGE, ring_at)
        table.set(moved, "record_umem_valid", 1, at)
        memory = make_memory(self, [record & -PAGE], page_offset=record % PAGE)
        table.set(moved, "record_umem", memory, at)
        table.set(moved, "doorbell_record", 0, at)
        return bytes(moved)
