"""The memory that both sides of NTRDMA's world must hold, and the requests that change it."""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass
from enum import Enum, auto

from bluebridge.guest.verbs.enums import WcStatus, WrOpcode
from tests.world.ntrdma.side import SLOT, End, Side, Window
from tests.world.ntrdma.wire import Machine

PAIRS = 4
WRITES = (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM)
RECEIVED = (
    WrOpcode.SEND,
    WrOpcode.SEND_WITH_IMM,
    WrOpcode.SEND_WITH_INV,
    WrOpcode.RDMA_WRITE_WITH_IMM,
)
_BASES = (0x1_0000_0000, 0x5_0000_0000)


class Wrong(Enum):
    """Kinds of what a request does that it may not do."""

    KEY = auto()
    RANGE = auto()
    RIGHT = auto()
    DOMAIN = auto()
    QUEUE = auto()
    OWN = auto()


STATUSES = dict.fromkeys(Wrong, WcStatus.REM_ACCESS_ERR) | {
    Wrong.QUEUE: WcStatus.REM_INV_REQ_ERR,
    Wrong.OWN: WcStatus.LOC_PROT_ERR,
}
LOSSES = {WcStatus.WR_FLUSH_ERR, WcStatus.RETRY_EXC_ERR}
"""How a request may end for the sake of a peer that is gone."""
RACES = LOSSES | {WcStatus.REM_ACCESS_ERR, WcStatus.REM_OP_ERR, WcStatus.MW_BIND_ERR}
"""How one may end that met the end of a registration."""


@dataclass
class Operation:
    """A posted request of side `number`; `source` and `target` are slots, -1 for none."""

    kind: WrOpcode
    number: int
    index: int
    source: int
    target: int = -1
    offset: int = 0
    length: int = 0
    data: bytes = b""
    signaled: bool = True
    wrong: Wrong | None = None
    window: Window | None = None
    """The registration that it goes through, or ends, or begins."""
    listed: bool = False
    may_fail: bool = False
    """Whether a registration that it needs has been ended."""
    seen: bytes | None = None
    """The bytes of the target when its registration had ended, which gives it back."""
    done: bool = False
    orphan: bool = False
    """Whether the other side has died since, or has given its memory new bytes."""

    def shows(self, view: bytes) -> bool:
        """Whether the bytes of the slot that it changes are those that it should bring."""
        if self.window is not None and self.kind in WRITES:
            view = self.window.arranged(view)
        return view[self.offset : self.offset + self.length] == self.data


class Model:
    """Both sides, and what of their memory is known."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.machines = [Machine(base, name) for base, name in zip(_BASES, "ab", strict=True)]
        self.known: list[dict[int, bytes]] = [{}, {}]
        """Of each side, the bytes of the slots that are known."""
        self.operations: dict[int, Operation] = {}
        self.sent: list[list[deque[Operation]]] = [[deque() for _ in range(PAIRS)] for _ in "ab"]
        """Of each side and queue pair, what must arrive as receives of the other, in order."""
        self.next_number = 1
        self.completed = self.failed = self.deaths = 0
        self.endings: Counter[tuple[WrOpcode | Wrong, WcStatus]] = Counter()
        """How often requests of each kind, or wrong in each way, have ended how."""
        self.sides = [self.life(0), self.life(1)]
        for number in (0, 1):
            self.begin(number)

    def life(self, number: int) -> Side:
        """A side that has just begun."""
        own, peer = self.machines[number], self.machines[1 - number]
        return Side(own, peer, PAIRS, self.chance, lambda: self.now)

    def begin(self, number: int) -> None:
        """New bytes in all slots of a side."""
        self.known[number].clear()
        for index in range(PAIRS):
            self.refill(number, index)
        for slot in self.sides[number].pool:
            self._fill(number, slot)

    def refill(self, number: int, index: int) -> None:
        """Nothing is under way for these slots: new bytes, which stay until an operation."""
        side = self.sides[number]
        for slot in side.slots_of(index):
            before = self.known[number].get(slot)
            assert before is None or side.view(slot) == before, f"slot {slot} has changed"
            self._fill(number, slot)
        end = side.ends[index]
        end.free = side.slots_of(index)
        end.receives.clear()

    def _fill(self, number: int, slot: int) -> None:
        data = self.chance.randbytes(SLOT)
        self.sides[number].view(slot)[:] = data
        self.known[number][slot] = data

    def settles(self, number: int, slot: int) -> bytes:
        """From now on a slot keeps its bytes until another operation changes it."""
        view = self.known[number][slot] = bytes(self.sides[number].view(slot))
        return view

    def changed(self, operation: Operation) -> tuple[int, int] | None:
        """Side and slot that an operation writes to."""
        if operation.wrong is not None:
            return None
        if operation.kind is WrOpcode.RDMA_READ:
            return operation.number, operation.source
        if operation.kind in WRITES:
            return 1 - operation.number, operation.target
        return None

    def number(self) -> int:
        """For a work request."""
        self.next_number += 1
        return self.next_number

    def usable(self, number: int, end: End) -> bool:
        """Whether requests can be posted that will be carried out."""
        return self.sides[number].usable(end)

    def check(self) -> None:
        """Memory is what the model says."""
        for side, known in zip(self.sides, self.known, strict=True):
            assert side.guards_hold(), f"{side.machine.name}: bytes beside the region have changed"
            for slot, data in known.items():
                assert side.view(slot) == data, f"{side.machine.name}: slot {slot} has changed"

    def check_twins(self) -> None:
        """Each side has exactly the twins of what the other has."""
        for number in (0, 1):
            own, peer = self.sides[number].engine.own, self.sides[1 - number].engine.remote
            domains = own.resources.domains
            regions = sum(len(domain.regions) for domain in domains.values())
            assert peer.count == len(domains) + regions + len(own.resources.pairs)
