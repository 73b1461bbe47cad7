"""Faults by name that are armed on one HCA of any card, and which of its work they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.faults import NO_LIMIT, Effect
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.vocabulary import Role

ON_COMMANDS: Final = frozenset(
    (Effect.COMMAND_FAILS, Effect.COMMAND_LATE, Effect.COMMAND_NEVER, Effect.COMMAND_WRONG)
)
ON_EVENTS: Final = frozenset((Effect.EQE_LOST,))
ON_VECTORS: Final = frozenset((Effect.INTERRUPT_LOST,))
ON_COMPLETIONS: Final = frozenset(
    (Effect.CQE_LOST, Effect.CQE_DOUBLED, Effect.CQE_LATE, Effect.CQE_FOREIGN, Effect.CQE_STATUS)
)
ON_REQUESTS: Final = frozenset((Effect.WR_REFUSED,))
ANY: Final = -1
"""The target of a fault that is about more than one queue pair."""
MOST_KEPT: Final = 256
FOREIGN_QPN: Final = 0xFFFFFE
"""A number that no queue pair has."""


def _nothing() -> None:
    """Do nothing: most faults end without."""


class Entries(Protocol):
    """The form of a card's completion entries, which faults change."""

    def operation(self, cqe: bytes) -> str:
        """Return the name in verbs of the operation that is complete; empty for a failed one."""

    def posted(self, operation: int) -> str:
        """Return the name in verbs of an operation of engines (`rdma.vocabulary`)."""

    def foreign(self, cqe: bytes) -> bytes:
        """Return the entry as one of `FOREIGN_QPN`."""

    def failed(self, cqe: bytes, status: int, vendor: int) -> bytes:
        """Return the entry as one in error with these syndromes."""


@dataclass(slots=True, eq=False)
class ArmedFault:
    """One armed fault, the `number`-th of its HCA, of the kind `effect`.

    It is about one `target` (opcode, queue pair, type of event or vector), takes `count` of what
    matches (`NO_LIMIT`: all) from the `nth` on, and ends commands with `status`, or completions
    with that syndrome and the vendor syndrome `vendor`, or delays them by `seconds`. With the
    target `ANY` it is about queue pairs of the types `roles`; one that `waits` takes nothing before
    one of these is connected, which is its target then. `operation` names the work requests that it
    is about, or is empty. `change` returns the wrong answer of a command, `undo` is called when the
    fault is cleared, `look` brings counts up to date that others keep.
    """

    number: int
    name: str
    effect: Effect
    target: int
    status: int = 0
    vendor: int = 0
    roles: frozenset[str] = frozenset()
    operation: str = ""
    waits: bool = False
    seconds: float = 0.0
    nth: int = 1
    count: int = 1
    matched: int = 0
    taken: int = 0
    change: Callable[[bytes], bytes] = bytes
    undo: Callable[[], None] = _nothing
    look: Callable[[], None] = _nothing

    @property
    def reason(self) -> str:
        """Why a command or work request that meets the fault ends as it does."""
        return f"fault {self.number}, {self.name}"

    def about(self) -> str:
        """Return what the fault is about in words."""
        pairs = f"queue pairs of {', '.join(sorted(self.roles))}" if self.roles else "queue pairs"
        which = f"{self.target:#x}" if self.target != ANY else pairs
        if self.waits:
            which = f"the next connection of {', '.join(sorted(self.roles))}"
        return f"{which}, {self.operation}" if self.operation else which

    def takes(self) -> bool:
        """Count one more that matches; return True if the fault takes it."""
        self.matched += 1
        if self.matched < self.nth or (self.count != NO_LIMIT and self.taken >= self.count):
            return False
        self.taken += 1
        return True


class ArmedFaults:
    """The armed faults of one HCA, oldest first; a reset of the HCA does not end them.

    `completions`, `events` and `vectors` have those that wait for such a thing by what they are
    about, so that the way of all others costs one look. Those on completions and on work requests
    of more than one queue pair are under `ANY`.
    """

    def __init__(self, bus: HostBus, entries: Entries | None = None) -> None:
        """`entries` is None for a guest without an HCA."""
        self._bus = bus
        self._entries = entries
        self._faults: list[ArmedFault] = []
        self._waiting: list[tuple[ArmedFault, Callable[[], None]]] = []
        self._last = 0
        self._taken = 0  # by faults that ended
        self._commands: dict[int, list[ArmedFault]] = {}
        self.completions: dict[int, list[ArmedFault]] = {}
        self.requests: dict[int, list[ArmedFault]] = {}
        self.events: dict[int, list[ArmedFault]] = {}
        self.vectors: dict[int, list[ArmedFault]] = {}
        self.role_of: Callable[[int], Role | None] = lambda _qpn: Role.RC
        """The type of a queue pair, None if there is none; the adapter says how to find it."""

    def table(self) -> list[ArmedFault]:
        """Return the armed faults, oldest first."""
        for fault in self._faults:
            fault.look()
        return list(self._faults)

    @property
    def taken(self) -> int:
        """How often faults took something, those included that ended."""
        return self._taken + sum(fault.taken for fault in self.table())

    def next_number(self) -> int:
        """Return a number that no fault of this HCA had."""
        self._last += 1
        return self._last

    def arm(self, fault: ArmedFault) -> None:
        """Let a fault wait for what it is about."""
        self._faults.append(fault)
        self._look()

    def clear(self, faults: list[ArmedFault]) -> None:
        """End faults; commands that they keep are carried out now."""
        self._taken += sum(fault.taken for fault in self.table() if fault in faults)
        self._faults = [fault for fault in self._faults if fault not in faults]
        self._look()
        due = [action for fault, action in self._waiting if fault in faults]
        self._waiting = [each for each in self._waiting if each[0] not in faults]
        for action in (*due, *(fault.undo for fault in faults)):
            action()

    def command(self, opcode: int, name: Callable[[int], str]) -> ArmedFault | None:
        """Return the fault that a command meets, None for most; `name` names its opcode."""
        waiting = self._commands.get(opcode)
        return self._taking(waiting, name(opcode)) if waiting else None

    def keep(self, fault: ArmedFault, action: Callable[[], None]) -> None:
        """Keep what carries a command out until its fault is cleared; the oldest are forgotten."""
        self._waiting = [*self._waiting[1 - MOST_KEPT :], (fault, action)]

    def connected(self, qpn: int) -> None:
        """Let the oldest fault that waits for a queue pair like this one be about it."""
        role = self.role_of(qpn)
        for fault in self._faults:
            if fault.waits and role is not None and role.value in fault.roles:
                fault.waits, fault.target = False, qpn
                self._look()
                return

    def has_completion(self, qpn: int) -> bool:
        """Return True if a fault may be about a completion of a queue pair."""
        return qpn in self.completions or ANY in self.completions

    def completion(self, qpn: int, cqe: bytes) -> list[tuple[float, bytes]]:
        """Return the entries that are written for one, each with the seconds until then."""
        assert self._entries is not None, "who completes work has a form of entries"
        fault = self._of_pair(self.completions, qpn, self._entries.operation(cqe))
        return [(0.0, cqe)] if fault is None else _changed(fault, cqe, self._entries)

    def refusal(self, qpn: int, operation: int) -> str:
        """Return why a work request is not carried out, empty for one that meets no fault."""
        assert self._entries is not None, "who takes work has a form of entries"
        fault = self._of_pair(self.requests, qpn, self._entries.posted(operation))
        return "" if fault is None else fault.reason

    def _of_pair(
        self, waiting: dict[int, list[ArmedFault]], qpn: int, operation: str
    ) -> ArmedFault | None:
        """Return the oldest fault that takes a work request of a queue pair, or its completion."""
        found = [*waiting.get(qpn, ()), *waiting.get(ANY, ())]
        role = self.role_of(qpn)
        about = [
            fault for fault in sorted(found, key=_age)
            if fault.operation in ("", operation)
            and (not fault.roles or (role is not None and role.value in fault.roles))
        ]  # fmt: skip
        return self._taking(about, "", qpn)

    def loses_event(self, event_type: int) -> bool:
        """Return True if an event gets lost."""
        return self._taking(self.events[event_type], f"event {event_type:#x}") is not None

    def loses_interrupt(self, vector: int) -> bool:
        """Return True if an interrupt gets lost."""
        return self._taking(self.vectors[vector], f"vector {vector}") is not None

    def _taking(self, waiting: list[ArmedFault], what: str, qpn: int = 0) -> ArmedFault | None:
        """Return the oldest of those that wait for a thing that takes it."""
        for fault in waiting:
            if fault.takes():
                self._bus.tell(
                    Fact.NAMED_FAULT, fault=fault.number, name=fault.name, what=what, qpn=qpn
                )
                return fault
        return None

    def _look(self) -> None:
        self._commands = self._by_target(ON_COMMANDS)
        self.completions = self._by_target(ON_COMPLETIONS)
        self.requests = self._by_target(ON_REQUESTS)
        self.events = self._by_target(ON_EVENTS)
        self.vectors = self._by_target(ON_VECTORS)

    def _by_target(self, effects: frozenset[Effect]) -> dict[int, list[ArmedFault]]:
        found: dict[int, list[ArmedFault]] = {}
        for fault in self._faults:
            if fault.effect in effects and not fault.waits:
                found.setdefault(fault.target, []).append(fault)
        return found


def _age(fault: ArmedFault) -> int:
    return fault.number


def _changed(fault: ArmedFault, cqe: bytes, entries: Entries) -> list[tuple[float, bytes]]:
    effect = fault.effect
    if effect is Effect.CQE_LOST:
        return []
    if effect is Effect.CQE_DOUBLED:
        return [(0.0, cqe), (0.0, cqe)]
    if effect is Effect.CQE_LATE:
        return [(fault.seconds, cqe)]
    if effect is Effect.CQE_FOREIGN:
        return [(0.0, entries.foreign(cqe))]
    return [(0.0, entries.failed(cqe, fault.status, fault.vendor))]
