"""Requests of applications in NTRDMA's world, of all kinds, right ones and wrong ones."""

from __future__ import annotations

import itertools
from typing import cast

from bluebridge.guest.verbs.enums import SendFlags, WrOpcode
from bluebridge.guest.verbs.values import FastRegistration, RecvWr, SendWr, Sge
from tests.world.ntrdma.model import RECEIVED, WRITES, Model, Operation, Wrong
from tests.world.ntrdma.side import (
    ALIEN,
    ALL,
    FAST_IOVA,
    FIXED,
    IOVA,
    KEY,
    LIST,
    LIST_IOVA,
    NO_READS,
    PAGE,
    PAGES,
    READ_ONLY,
    SLOT,
    WRITE_ONLY,
    End,
    Side,
    Window,
)

_KINDS = (*WRITES, WrOpcode.RDMA_READ, WrOpcode.SEND, WrOpcode.SEND_WITH_IMM, WrOpcode.NOP)
_TO_MEMORY = (*WRITES, WrOpcode.RDMA_READ)
MOST_SHARED = 10
"""Receives in a shared queue, of which one queue pair may come to have all."""


class Posting(Model):
    """Posts at random."""

    wrong_chance = 0.03
    """How many writes and reads are wrong."""

    def post(self, number: int) -> None:
        """Some frames, requests of one queue pair, and receives at the other end."""
        side = self.sides[number]
        side.frames.post(side.engine.ethernet, self.chance.choice((0, 1, 2, 9)))
        end = self.chance.choice(side.ends)
        other = self.sides[1 - number].ends[end.index]
        if not self.usable(number, end) or not other.connected:
            return
        for _ in range(self.chance.choice((1, 1, 2, 5))):
            roll = self.chance.random()
            if roll < 0.5:
                self.post_receive(1 - number, other)
            elif roll < 0.9:
                self._post_send(number, end, other)
            else:
                self._post_registration(number, end, other)
        if self.chance.random() < 0.1:
            self._change_list(number)
        side.engine.run(self.now)

    # -- receives -------------------------------------------------------------------------------

    def post_receive(self, number: int, end: End, most_shared: int = MOST_SHARED) -> None:
        """A receive, if there is room and memory."""
        side = self.sides[number]
        if not self.usable(number, end):
            return
        if end.sharing:
            if len(side.shared_slots) < most_shared:
                self._post_shared(side, number)
            return
        if len(end.receives) >= 8 or not end.free or end.pair.receives.used >= 8:
            return
        slot = end.free.pop(self.chance.randrange(len(end.free)))
        wr = self._receive(side, number, slot)
        side.engine.own.post_receive(end.pair, wr)
        side.engine.own.push_receives(end.pair)
        end.receives.append((wr.wr_id, slot))

    def _post_shared(self, side: Side, number: int) -> None:
        if side.pool:
            slot = side.pool.pop(self.chance.randrange(len(side.pool)))
            wr = self._receive(side, number, slot)
            side.shared_slots[wr.wr_id] = slot
            side.shared.post_recv(wr)

    def _receive(self, side: Side, number: int, slot: int) -> RecvWr:
        self.known[number].pop(slot)
        return RecvWr(self.number(), self._pieces(side.iova(slot), SLOT))

    def _pieces(self, address: int, length: int, key: int = KEY) -> tuple[Sge, ...]:
        """The memory as one to three pieces, some perhaps empty."""
        cuts = sorted(self.chance.randrange(length + 1) for _ in range(self.chance.randrange(3)))
        places = [0, *cuts, length]
        return tuple(
            Sge(address + start, end - start, key) for start, end in itertools.pairwise(places)
        )

    # -- messages, writes, reads ----------------------------------------------------------------

    def _room(self, end: End, entries: int = 1) -> bool:
        return end.pair.sends.posted - end.pair.sends.retired + entries <= 8

    def _take(self, end: End) -> int:
        return end.free.pop(self.chance.randrange(len(end.free)))

    def _post_send(self, number: int, end: End, other: End) -> None:
        if not self._room(end) or len(end.free) < 2 or not other.free:
            return
        kind = self.chance.choice(_KINDS)
        wrong = self._wrong(end, kind)
        if kind is WrOpcode.RDMA_READ and end.index == NO_READS and wrong is None:
            kind = WrOpcode.RDMA_WRITE
        operation = Operation(kind, number, end.index, self._take(end), wrong=wrong)
        operation.length = self.chance.choice((1, 8, 100, SLOT) if wrong else (0, 1, 8, 100, SLOT))
        operation.offset = self.chance.randrange(SLOT - operation.length + 1)
        if kind in _TO_MEMORY:
            self._aim(operation, other)
        self._request(operation, end)
        window = operation.window
        if window is not None and not window.ending and self.chance.random() < 0.3:
            self.sides[number].engine.run(self.now)
            if self.usable(1 - number, other) and self._room(other):
                self._invalidate_own(1 - number, other, window)
                self.sides[1 - number].engine.run(self.now)

    def _wrong(self, end: End, kind: WrOpcode) -> Wrong | None:
        """Return the fault that a request is to have, None for none."""
        if kind not in _TO_MEMORY or self.chance.random() > self.wrong_chance:
            return None
        wrong = self.chance.choice(tuple(Wrong))
        if wrong is Wrong.DOMAIN and end.index % 2 == 0:
            return Wrong.KEY
        no_reads = kind is WrOpcode.RDMA_READ and end.index == NO_READS
        if no_reads and wrong is not Wrong.OWN:
            return Wrong.QUEUE
        return Wrong.RIGHT if wrong is Wrong.QUEUE and not no_reads else wrong

    def _aim(self, operation: Operation, other: End) -> None:
        """Choose the peer's memory: a registration by work request, or a slot of its own."""
        window = other.window
        if window is None or not window.valid or operation.wrong or self.chance.random() < 0.5:
            operation.target = self._take(other)
            return
        users = [each for each in self.operations.values() if each.window is window]
        if users or (window.ending and self.chance.random() < 0.7):
            operation.target = self._take(other)
            return
        operation.window, operation.target = window, window.slot
        operation.may_fail = window.ending

    def _request(self, operation: Operation, end: End) -> None:
        side, peer = self.sides[operation.number], self.sides[1 - operation.number]
        start, length = operation.offset, operation.length
        data = bytes(side.view(operation.source))
        if operation.kind is WrOpcode.RDMA_READ:
            data = bytes(peer.view(operation.target))
            if operation.window is not None:
                data = operation.window.arranged(data)
        operation.data = data[start : start + length]
        key = KEY
        if operation.wrong is Wrong.OWN:
            key = FIXED if operation.kind is WrOpcode.RDMA_READ else KEY ^ 1
        pieces = self._pieces(side.iova(operation.source) + start, length, key)
        request = SendWr(self.number(), operation.kind, pieces, imm=self.next_number)
        if operation.kind in _TO_MEMORY:
            request.rkey, request.remote_addr = self._remote(operation, peer)
        if operation.kind is WrOpcode.SEND and length <= 16 and self.chance.random() < 0.5:
            request.inline_data = operation.data
        self._send(operation, end, request)

    def _remote(self, operation: Operation, peer: Side) -> tuple[int, int]:
        """Key and address of the peer's memory, wrong ones for a wrong request."""
        reads, address = operation.kind is WrOpcode.RDMA_READ, peer.iova(operation.target)
        address += operation.offset
        match operation.wrong:
            case Wrong.KEY:
                return KEY ^ 1, address
            case Wrong.RANGE:
                beyond = IOVA + peer.span - operation.length + 1
                return KEY, self.chance.choice((beyond, IOVA - 1, 0, (1 << 64) - 1))
            case Wrong.RIGHT:
                return (WRITE_ONLY if reads else READ_ONLY), address
            case Wrong.DOMAIN:
                return ALIEN, address
        if operation.window is not None:
            return operation.window.key, operation.window.iova + operation.offset
        if peer.listed and operation.index % 2 == 0 and self.chance.random() < 0.5:
            operation.listed = True
            place = peer.positions[operation.target]
            return LIST, LIST_IOVA + place * SLOT + operation.offset
        fitting = READ_ONLY if reads else WRITE_ONLY
        return self.chance.choice((KEY, fitting)), address

    def _send(self, operation: Operation, end: End, request: SendWr) -> None:
        full = not self._room(end, 2)  # of unsignaled requests alone it would stay so
        operation.signaled = self.chance.random() < 0.8 or full
        flags = SendFlags.SIGNALED if operation.signaled else SendFlags(0)
        if self.chance.random() < 0.2:
            flags |= SendFlags.SOLICITED
        if operation.kind is WrOpcode.SEND_WITH_INV or self.chance.random() < 0.05:
            flags |= SendFlags.FENCE
        request.send_flags = flags
        self.sides[operation.number].engine.own.post_send(end.pair, request)
        self.operations[request.wr_id] = operation
        changed = self.changed(operation)
        if changed is not None:
            self.known[changed[0]].pop(changed[1], None)
        if operation.kind in RECEIVED:
            self.sent[operation.number][operation.index].append(operation)

    def waits(self, number: int, end: End) -> bool:
        """Whether the last request of a queue pair is not signaled, so that nothing tells of it."""
        place = number, end.index
        own = [each for each in self.operations.values() if (each.number, each.index) == place]
        return bool(own) and not own[-1].signaled

    def post_nop(self, number: int, end: End) -> None:
        """A request that tells of all before it."""
        if end.free and self._room(end):
            operation = Operation(WrOpcode.NOP, number, end.index, self._take(end))
            request = SendWr(self.number(), WrOpcode.NOP)
            self.sides[number].engine.own.post_send(end.pair, request)
            self.operations[request.wr_id] = operation
            self.sides[number].engine.run(self.now)

    # -- registrations --------------------------------------------------------------------------

    def _post_registration(self, number: int, end: End, other: End) -> None:
        """Register a slot by work request, or end such a registration from either side."""
        if not self._room(end) or len(end.free) < 2:
            return
        window = end.window
        if self.chance.random() < 0.6 and other.window is not None and other.window.valid:
            self._invalidate(number, end, other.window)
        elif window is None:
            self._register(number, end)
        elif window.valid and (not window.ending or self.chance.random() < 0.1):
            self._invalidate_own(number, end, window)

    def _invalidate_own(self, number: int, end: End, window: Window) -> None:
        operation = Operation(WrOpcode.LOCAL_INV, number, end.index, -1, window=window)
        operation.may_fail = window.ending
        self._ends(window)
        request = SendWr(self.number(), WrOpcode.LOCAL_INV, invalidate_rkey=window.key)
        self._send(operation, end, request)

    def _register(self, number: int, end: End) -> None:
        side, fast = self.sides[number], end.fast
        assert fast is not None
        order = tuple(self.chance.sample(range(PAGES), PAGES))
        iova = FAST_IOVA + self.chance.randrange(64) * PAGE
        window = end.window = Window(fast.next_key(), self._take(end), order, iova)
        base = side.bus(window.slot)
        request = SendWr(
            self.number(),
            WrOpcode.REG_MR,
            mr=cast(FastRegistration, fast),
            pages=[base + page * PAGE for page in order],
            page_size=PAGE,
            key=window.key,
            access=ALL,
            iova=iova,
            length=SLOT,
        )
        self._send(Operation(WrOpcode.REG_MR, number, end.index, -1, window=window), end, request)

    def _invalidate(self, number: int, end: End, window: Window) -> None:
        """A message that ends a registration of the peer."""
        if window.ending and self.chance.random() < 0.9:
            return
        side = self.sides[number]
        operation = Operation(WrOpcode.SEND_WITH_INV, number, end.index, self._take(end), length=8)
        operation.data = bytes(side.view(operation.source)[:8])
        operation.window, operation.may_fail = window, window.ending
        self._ends(window)
        pieces = self._pieces(side.iova(operation.source), 8)
        request = SendWr(self.number(), operation.kind, pieces, invalidate_rkey=window.key)
        self._send(operation, end, request)

    def _ends(self, window: Window) -> None:
        """From now on requests through a registration may find it gone."""
        window.ending = True
        for each in self.operations.values():
            if each.window is window:
                each.may_fail = True

    def _change_list(self, number: int) -> None:
        """Register the region of many ranges, or end that, while requests go through it."""
        side = self.sides[number]
        listed, side.listed = side.listed, None
        resources = side.engine.own.resources
        if listed is None:
            return
        if not listed:
            side.listing = resources.register(side.domains[0], side.many_ranges())
            return
        for each in self.operations.values():
            if each.listed and each.number != number:
                each.may_fail = True
        side.listing = resources.deregister(side.domains[0], LIST)
