"""The part of a driver that pages on demand, as `odp.c` of Linux, for tests with `RoceNode`."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.event_queues import (
    CREATE_EQ,
    EQC,
    EQE_BYTES,
    FAULT_EQES,
    EventType,
    FaultSubtype,
)
from bluebridge.device.layout.mlx5.init_segment import EQ_UPDATE
from bluebridge.device.layout.mlx5.page_faults import PAGE_FAULT_RESUME
from bluebridge.device.layout.mlx5.wqe import KeyMask, UmrFlag
from tests.models.mlx5_keys import ACCESS, ENABLE, PAGE, change, empty_key, updater_of
from tests.models.mlx5_pair import RoceNode

LOG_EQ = 8
READABLE, PRESENT = 1, 3
BLOCK = 8
"""Entries that a change has at least."""


class PageFault:
    """An event PAGE_FAULT."""

    def __init__(self, event: bytes) -> None:
        self.sub_type = FaultSubtype(event[3])
        layout = FAULT_EQES[self.sub_type]
        self.values = {field.name: layout.get(event, field.name) for field in layout}

    def __getattr__(self, name: str) -> int:
        return self.values[name]


class Pager:
    """The key `key` of `count` pages, all absent at first, and the answers to page faults."""

    def __init__(
        self, node: RoceNode, count: int = 64, *, start: int = 0x10000000, **more: Value
    ) -> None:
        self.node, self.count, self.start = node, count, start
        self.entries = [0] * (-(-count // BLOCK) * BLOCK)
        self.updater = updater_of(node)
        self.seen = 0
        self.kept: dict[int, int] = {}
        self._make_eq()
        self._list = node.host.allocate(len(self.entries) * 8)
        self.key = empty_key(node, count)
        values: dict[str, Value] = {
            **ACCESS, "start": start, "length": count * PAGE, "pd": node.pd, "atomic": 1, **more,
        }  # fmt: skip
        self._change(ENABLE | KeyMask.ATOMIC, self.entries, UmrFlag.MUST_BE_FREE, values=values)

    def _make_eq(self) -> None:
        node = self.node
        self.eq_address = node.host.allocate(EQE_BYTES << LOG_EQ)
        node.host.poke(self.eq_address, (bytes(EQE_BYTES - 1) + b"\1") * (1 << LOG_EQ))
        context = bytes(EQC.pack(log_size=LOG_EQ, uar_page=node.uar, vector=2))
        mask = (1 << EventType.PAGE_FAULT).to_bytes(8, "big").ljust(32, b"\0")
        data = CREATE_EQ.pack(context=context, event_bitmask=mask)
        pages = (EQE_BYTES << LOG_EQ) // PAGE
        self.eq = node.make(Opcode.CREATE_EQ, bytes(data) + node.pages(self.eq_address, pages))

    def _change(
        self,
        mask: int,
        entries: Sequence[int],
        flags: int,
        offset: int = 0,
        values: dict[str, Value] | None = None,
    ) -> None:
        raw = b"".join(entry.to_bytes(8, "big") for entry in entries)
        pair, key = self.updater, self.key
        change(
            pair,
            key,
            mask,
            flags=flags,
            offset=offset,
            values=values or {},
            entries=raw,
            place=self._list,
        )
        self.updater.sent()

    def backing(self, page: int) -> int:
        """The address of a page that is there."""
        return self.entries[page] & ~0xFFF

    def peek(self, address: int, length: int) -> bytes:
        """The bytes at an address of the key, whose pages are there."""
        found = b""
        while len(found) < length:
            page, within = divmod(address - self.start + len(found), PAGE)
            some = min(PAGE - within, length - len(found))
            found += self.node.host.peek(self.backing(page) + within, some)
        return found

    def lend(self, first: int, count: int = 1, bits: int = PRESENT) -> None:
        """Bring pages in, where they were if they were there."""
        for page in range(first, first + count):
            place = self.backing(page) or self.kept.get(page) or self.node.host.allocate(PAGE)
            self.entries[page] = place | bits
        self._publish(first, count)

    def take(self, first: int, count: int = 1) -> None:
        """Take pages away, as when they are swapped out; `lend` brings them back."""
        for page in range(first, first + count):
            self.kept[page] = self.backing(page) or self.kept.get(page, 0)
            self.entries[page] = 0
        self._publish(first, count)

    def _publish(self, first: int, count: int) -> None:
        begin, end = first // BLOCK * BLOCK, -(-(first + count) // BLOCK) * BLOCK
        self._change(0, self.entries[begin:end], UmrFlag.MUST_NOT_BE_FREE, begin // 2)

    def faults(self) -> list[PageFault]:
        """The events since the last call."""
        found: list[PageFault] = []
        while True:
            at = self.eq_address + (self.seen & (1 << LOG_EQ) - 1) * EQE_BYTES
            raw = self.node.host.peek(at, EQE_BYTES)
            if raw[-1] & 1 != self.seen >> LOG_EQ & 1:
                return found
            # Another process may have written it between its first and its last byte.
            found.append(PageFault(self.node.host.peek(at, EQE_BYTES)))
            self.seen += 1
            consumed = self.eq << 24 | self.seen & 0xFFFFFF
            self.node.store(EQ_UPDATE, consumed.to_bytes(4, "big"))

    def resume(self, fault: PageFault, /, **more: int) -> Status:
        """Answer a page fault."""
        queue = fault.token if fault.sub_type is FaultSubtype.RDMA else fault.queue
        values = {"fault": fault.fault & 7, "queue": queue, "token": fault.token, **more}
        data = bytes(PAGE_FAULT_RESUME.pack(values))
        return self.node.status(Opcode.PAGE_FAULT_RESUME, data)
