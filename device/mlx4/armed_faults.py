"""Faults by name that are armed on one HCA, and what they do to its commands and completions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.cqe import IS_SEND_BIT, OPCODE_ERROR
from bluebridge.device.layout.mlx4.faults import NO_LIMIT, Effect
from bluebridge.device.pci.bus import HostBus

ON_COMMANDS: Final = frozenset(
    (Effect.COMMAND_FAILS, Effect.COMMAND_LATE, Effect.COMMAND_NEVER, Effect.COMMAND_WRONG)
)
ON_EVENTS: Final = frozenset((Effect.EQE_LOST,))
ON_VECTORS: Final = frozenset((Effect.INTERRUPT_LOST,))
ON_COMPLETIONS: Final = frozenset(
    (Effect.CQE_LOST, Effect.CQE_DOUBLED, Effect.CQE_LATE, Effect.CQE_FOREIGN, Effect.CQE_STATUS)
)
MOST_KEPT: Final = 256
FOREIGN_QPN: Final = 0xFFFFFE
_QPN: Final = 0xFFFFFF
_IS_SEND: Final = int(IS_SEND_BIT)
_ERROR: Final = Struct(">4s20x2sBB3xB")
_VENDOR_SYNDROME: Final = 0x77


def _nothing() -> None:
    """Do nothing: most faults end without."""


@dataclass(slots=True, eq=False)
class ArmedFault:
    """One armed fault, the `number`-th of its HCA, of the kind `effect`.

    It is about one `target` (opcode, queue pair, type of event or vector), takes `count` of what
    matches (`NO_LIMIT`: all) from the `nth` on, and ends commands with `status`, or completions
    with that syndrome, or delays them by `seconds`. `change` returns the wrong answer of a command,
    `undo` is called when the fault is cleared, `look` brings counts up to date that others keep.
    """

    number: int
    name: str
    effect: Effect
    target: int
    status: int = 0
    seconds: float = 0.0
    nth: int = 1
    count: int = 1
    matched: int = 0
    taken: int = 0
    change: Callable[[bytes], bytes] = bytes
    undo: Callable[[], None] = _nothing
    look: Callable[[], None] = _nothing

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
    about, so that the way of all others costs one look.
    """

    def __init__(self, bus: HostBus) -> None:
        self._bus = bus
        self._faults: list[ArmedFault] = []
        self._waiting: list[tuple[ArmedFault, Callable[[], None]]] = []
        self._last = 0
        self._commands: dict[int, list[ArmedFault]] = {}
        self.completions: dict[int, list[ArmedFault]] = {}
        self.events: dict[int, list[ArmedFault]] = {}
        self.vectors: dict[int, list[ArmedFault]] = {}
        self.has_pair: Callable[[int], bool] = lambda _qpn: True
        """Whether there is a queue pair with this number; the adapter says how to find it."""

    def table(self) -> list[ArmedFault]:
        """Return the armed faults, oldest first."""
        for fault in self._faults:
            fault.look()
        return list(self._faults)

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
        self._faults = [fault for fault in self._faults if fault not in faults]
        self._look()
        due = [action for fault, action in self._waiting if fault in faults]
        self._waiting = [each for each in self._waiting if each[0] not in faults]
        for action in (*due, *(fault.undo for fault in faults)):
            action()

    def command(self, opcode: int) -> ArmedFault | None:
        """Return the fault that a command meets, None for most."""
        waiting = self._commands.get(opcode)
        return self._taking(waiting, Opcode(opcode).name, 0) if waiting else None

    def keep(self, fault: ArmedFault, action: Callable[[], None]) -> None:
        """Keep what carries a command out until its fault is cleared; the oldest are forgotten."""
        self._waiting = [*self._waiting[1 - MOST_KEPT :], (fault, action)]

    def completion(self, qpn: int, cqe: bytes) -> list[tuple[float, bytes]]:
        """Return the entries that are written for one, each with the seconds until then."""
        fault = self._taking(self.completions[qpn], f"QP {qpn:#x}", qpn)
        return [(0.0, cqe)] if fault is None else _changed(fault, cqe)

    def loses_event(self, event_type: int) -> bool:
        """Return True if an event gets lost."""
        return self._taking(self.events[event_type], f"{event_type:#x}", 0) is not None

    def loses_interrupt(self, vector: int) -> bool:
        """Return True if an interrupt gets lost."""
        return self._taking(self.vectors[vector], f"{vector:#x}", 0) is not None

    def _taking(self, waiting: list[ArmedFault], what: str, obj: int) -> ArmedFault | None:
        """Return the oldest of those that wait for a thing that takes it."""
        for fault in waiting:
            if fault.takes():
                self._bus.note(Kind.FAULT, f"fault {fault.number} {fault.name}: {what}", obj=obj)
                return fault
        return None

    def _look(self) -> None:
        self._commands = self._by_target(ON_COMMANDS)
        self.completions = self._by_target(ON_COMPLETIONS)
        self.events = self._by_target(ON_EVENTS)
        self.vectors = self._by_target(ON_VECTORS)

    def _by_target(self, effects: frozenset[Effect]) -> dict[int, list[ArmedFault]]:
        found: dict[int, list[ArmedFault]] = {}
        for fault in self._faults:
            if fault.effect in effects:
                found.setdefault(fault.target, []).append(fault)
        return found


def _changed(fault: ArmedFault, cqe: bytes) -> list[tuple[float, bytes]]:
    effect = fault.effect
    if effect is Effect.CQE_LOST:
        return []
    if effect is Effect.CQE_DOUBLED:
        return [(0.0, cqe), (0.0, cqe)]
    if effect is Effect.CQE_LATE:
        return [(fault.seconds, cqe)]
    if effect is Effect.CQE_FOREIGN:
        word = int.from_bytes(cqe[:4], "big") & ~_QPN | FOREIGN_QPN
        return [(0.0, word.to_bytes(4, "big") + cqe[4:])]
    side = cqe[-1] & _IS_SEND
    error = _ERROR.pack(cqe[:4], cqe[24:26], _VENDOR_SYNDROME, fault.status, side | OPCODE_ERROR)
    return [(0.0, error)]


def reason_of(fault: ArmedFault) -> tuple[Status, str]:
    """Return the status and the reason with which a command that meets a fault ends."""
    return Status(fault.status), f"fault {fault.number}, {fault.name}"
