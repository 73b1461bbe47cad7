"""Lines of the control socket about faults by name (`bluebridge.device.layout.faults`).

arm NAME FAULT [WORD=VALUE ...]   answers with the fault's number, or nothing if it is over
armed [NAME]                      the faults that are armed, with their counts
disarm NAME [NUMBER]              end one, or all of an HCA
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bluebridge.device.armed_faults import ANY, ArmedFault, ArmedFaults
from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.fabric.faults.parse import rule_of
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.layout import ibverbs
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.faults import (
    CONNECTED,
    FLAG,
    OF_PAIRS,
    ONCE,
    PARAMETERS,
    QP_TYPES,
    USERS,
    Effect,
    Layer,
    NamedFault,
)
from bluebridge.device.layout.ioat import ChannelError
from bluebridge.device.layout.mlx4.bar0 import CATAS_LETTERS
from bluebridge.device.layout.mlx4.faults import BY_NAME
from bluebridge.device.mlx4 import device as mlx4
from bluebridge.device.mlx5 import device as mlx5
from bluebridge.device.ntb.shape import FaultPoints
from bluebridge.device.pci.bus import Presence
from bluebridge.device.pci.fault_point import Decision, FaultPoint
from bluebridge.device.pci.host import MasterBus
from bluebridge.device.pci.memory import PAGE_BYTES
from bluebridge.device.server.adapters import Adapter
from bluebridge.device.server.card_faults import CardFaults
from bluebridge.device.server.fault_values import named_value, number_in
from bluebridge.device.server.mlx4_faults import ConnectX3Faults
from bluebridge.device.server.mlx5_faults import ConnectX5Faults

MOST_ARMED: Final = 64
_TARGETS: Final = ("opcode", "qpn", "event", "vector", "address", "key", "index")
_ABSENCES: Final = {
    Effect.REGISTERS_LOST: Presence.NO_REGISTERS, Effect.REMOVED: Presence.GONE
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GuestBridge:
    """The places where faults strike a guest: its bridge, the one at the other end, its engines.

    `mapped` says that the peer's memory is mapped into the guest, so that no access passes here.
    """

    bus: MasterBus
    own: FaultPoints | None
    far: FaultPoints | None
    engines: Sequence[DmaEngine]
    armed: ArmedFaults
    mapped: bool = False

    def begin(self, fault: ArmedFault) -> None:
        """Put a fault into force and say what undoes it; raises `ValueError`."""
        for other in self.armed.table():
            if (other.effect, other.target) == (fault.effect, fault.target):
                raise ValueError(
                    f"{fault.name} is fault {other.number} already: `bluebridge fault GUEST clear`"
                )
        if fault.effect is Effect.DMA_ERROR:
            if not self.engines:
                raise ValueError("the guest has no DMA engine: start the pair with `--dma`")
            takes, error = self._taking(fault, "a descriptor"), ChannelError(fault.status)
            channels = [channel for engine in self.engines for channel in engine.channels]
            points = [channel.refusal for channel in channels]
            _arm(fault, points, lambda: error if takes() else None)
        elif self.own is None or self.far is None:
            raise ValueError("the guest has no bridge: start the pair with `bluebridge up --ntb`")
        elif fault.effect is Effect.SCRATCHPAD_STUCK:
            _stick(self.own, fault)
        elif fault.effect is Effect.DOORBELL_LOST:
            _arm(fault, [self.far.loss], self._taking(fault, "a doorbell"))
        else:
            if self.mapped:
                raise ValueError(
                    "with --window-alias no access through the window can be refused: start the "
                    "pair without it"
                )
            windows = [window.refusal for window in self.far.windows()]
            _arm(fault, windows, self._taking(fault, "an access"))

    def _taking(self, fault: ArmedFault, what: str) -> Callable[[], bool]:
        """Return what decides of each thing whether the fault takes it, and logs that."""

        def takes() -> bool:
            taken = fault.takes()
            if taken:
                self.bus.tell(Fact.NAMED_FAULT, fault=fault.number, name=fault.name, what=what)
            return taken

        return takes


def _arm(
    fault: ArmedFault, points: Sequence[FaultPoint[Decision]], decide: Callable[[], Decision]
) -> None:
    """Let a fault decide at some points while it is in force."""
    ends = [point.arm(decide) for point in points]

    def undo() -> None:
        for end in ends:
            end()

    fault.undo = undo


def _stick(points: FaultPoints, fault: ArmedFault) -> None:
    if fault.target >= len(points.scratchpads):
        count = len(points.scratchpads)
        raise ValueError(
            f"the bridge has scratchpads 0 to {count - 1}" if count else
            "this model of a bridge has no scratchpads: `bluebridge show GUEST ntb`"
        )  # fmt: skip
    offset, stuck = points.scratchpads[fault.target], points.registers.stuck
    stuck.add(offset)
    fault.undo = lambda: stuck.discard(offset)


class NamedFaultCommands:
    """Executes control lines on faults by name: of HCAs that `adapter_of` finds, and of `bridges`.

    Those of a guest's bridge and of its HCA are numbered and listed together.
    """

    def __init__(
        self,
        adapter_of: Callable[[str], Adapter],
        names: Sequence[str],
        rules: FaultRules,
        bridges: Mapping[str, GuestBridge],
    ) -> None:
        self._adapter_of = adapter_of
        self._rules = rules
        self._bridges = bridges
        self._names = list(dict.fromkeys((*names, *bridges)))

    def _card_of(self, name: str) -> CardFaults:
        adapter = self._adapter_of(name)
        if isinstance(adapter, mlx4.Hca):
            return ConnectX3Faults(adapter)
        assert isinstance(adapter, mlx5.Hca), "an adapter of another card"
        return ConnectX5Faults(adapter)

    def arm(self, words: Sequence[str]) -> list[str]:
        """Arm a fault; returns its number, or nothing if it is over."""
        named = BY_NAME.get(words[1])
        if named is None:
            raise ValueError(f"there is no fault {words[1][:40]!r}: `bluebridge fault list`")
        if named.layer is Layer.BRIDGE:
            return self._arm_bridge(words[0], named, _values(named, words[2:]))
        card = self._card_of(words[0])
        known = card.table.get(named.name)
        if known is None:
            raise ValueError(
                f"a {card.title} has no fault {named.name}: `bluebridge fault list` says of which "
                "cards each is"
            )
        return self._arm(words[0], card, known, _values(known, words[2:]))

    def _arm(
        self, name: str, card: CardFaults, named: NamedFault, values: Mapping[str, str]
    ) -> list[str]:
        if named.effect is Effect.PORT_LATE:
            self._late_port(name, card, number_in("ms", values["ms"]) / 1000)
            return []
        if named.effect is Effect.FATAL:
            fail(self._adapter_of(name), values.get("text", "injected"))
            return []
        if named.effect in ONCE:
            _happen(card, named, values)
            return []
        fault = _fault(card.armed, _target(card, named, values), named, values, card)
        if named.effect is Effect.WIRE:
            self._lay(name, fault, values["rule"])
        else:
            _begin(card, fault, values)
        card.armed.arm(fault)
        return [str(fault.number)]

    def _arm_bridge(self, name: str, named: NamedFault, values: Mapping[str, str]) -> list[str]:
        bridge = self._bridges.get(name)
        if bridge is None:
            if not self._bridges:
                raise ValueError("there is no bridge: start the pair with `bluebridge up --ntb`")
            raise ValueError(f"there is no bridge {name!r}, but {', '.join(self._bridges)}")
        target = number_in("index", values["index"]) if "index" in values else 0
        fault = _fault(bridge.armed, target, named, values)
        bridge.begin(fault)
        bridge.armed.arm(fault)
        return [str(fault.number)]

    def _faults_of(self, name: str) -> ArmedFaults:
        bridge = self._bridges.get(name)
        return self._card_of(name).armed if bridge is None else bridge.armed

    def _lay(self, name: str, fault: ArmedFault, words: str) -> None:
        """Put the link rule of a fault into force; raises `ValueError`."""
        action, *rest = words.split()
        rule = rule_of(action, rest)
        rule.of_fault = fault.number, fault.name
        self._rules.add(f"{name}/1", rule)
        fault.undo = lambda: self._rules.end(rule)

        def look() -> None:
            fault.matched, fault.taken = rule.matched, rule.taken

        fault.look = look

    def _late_port(self, name: str, card: CardFaults, seconds: float) -> None:
        """Pull the cable, plug it in later, and let nothing pass for as long again."""
        port, later = card.port, card.bus.call_later
        rule = rule_of("drop", [])
        self._rules.add(f"{name}/1", rule)
        port.plug(False)
        later(seconds, lambda: port.plug(True))
        later(2 * seconds, lambda: self._rules.end(rule))

    def armed(self, words: Sequence[str]) -> list[str]:
        """List the faults that are armed, with their counts."""
        return [
            f"{fault.number} {name} {fault.name} of {fault.about()}: "
            f"matched {fault.matched}, taken {fault.taken}"
            for name in words or self._names
            for fault in self._faults_of(name).table()
        ]

    def disarm(self, words: Sequence[str]) -> list[str]:
        """End a fault, or all of a guest."""
        faults = self._faults_of(words[0])
        found = faults.table()
        if len(words) == 2:
            found = [fault for fault in found if str(fault.number) == words[1]]
            if not found:
                raise ValueError(
                    f"no fault {words[1][:20]!r} is armed on {words[0]}: `bluebridge fault "
                    f"{words[0]} armed` lists them"
                )
        faults.clear(found)
        return []


def _values(named: NamedFault, words: Sequence[str]) -> dict[str, str]:
    """Return the values of all parameters of a fault; raises `ValueError`."""
    values: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        name = name.replace("_", "-")
        if not sign or not value or name not in named.parameters:
            raise ValueError(
                f"{word[:40]!r}: {named.name} takes {', '.join(named.parameters) or 'nothing'}"
            )
        if name in values:
            raise ValueError(f"{name} is said twice: leave one out")
        if PARAMETERS[name][0] == FLAG and value not in ("1", "True"):
            raise ValueError(f"{name}={value[:40]}: say {name} or leave it out")
        values[name] = value
    missing = [name for name in named.needs if name not in values]
    if missing:
        raise ValueError(
            f"{named.name} needs {' and '.join(missing)}: `bluebridge fault list` has all"
        )
    return {**named.fixed, **values}


def _fault(
    faults: ArmedFaults,
    target: int,
    named: NamedFault,
    values: Mapping[str, str],
    card: CardFaults | None = None,
) -> ArmedFault:
    """Return a fault that is not in force yet; raises `ValueError`."""
    if len(faults.table()) >= MOST_ARMED:
        raise ValueError(f"{MOST_ARMED} faults are armed: `bluebridge fault GUEST clear`")
    status = _status(named, values, card)
    seconds = number_in("ms", values["ms"]) / 1000 if "ms" in values else 0.0
    nth = number_in("nth", values.get("nth", "1"))
    count = number_in("count", values["count"]) if "count" in values else named.count
    if not nth or ("count" in values and not count):
        raise ValueError("nth and count: write 1 or more")
    fault = ArmedFault(
        0, named.name, named.effect, target, status=status, seconds=seconds, nth=nth, count=count
    )
    if card is not None and named.effect is Effect.CQE_STATUS:
        vendor = values.get("vendor")
        fault.vendor = number_in("vendor", vendor) if vendor else card.vendor(status)
    if card is not None and _of_pairs(named):
        _choose(fault, values)
    fault.number = faults.next_number()
    return fault


def _of_pairs(named: NamedFault) -> bool:
    return set(OF_PAIRS) <= set(named.takes)


def _choose(fault: ArmedFault, values: Mapping[str, str]) -> None:
    """Say which queue pairs and operations a fault is about; raises `ValueError`."""
    fault.waits = "next-connection" in values
    if fault.waits and "qpn" in values:
        raise ValueError("qpn names a queue pair that is there: leave next-connection out")
    types = values["qp-type"].upper().split(",") if "qp-type" in values else []
    if not set(types) <= set(QP_TYPES):
        raise ValueError(f"qp-type={values['qp-type'][:40]}: choose from {', '.join(QP_TYPES)}")
    if fault.target == ANY or types:
        fault.roles = frozenset(types or (CONNECTED if fault.waits else USERS))
    if "opcode" in values:
        fault.operation = ibverbs.operation(values["opcode"])
        if fault.operation not in ibverbs.OPERATIONS:
            known = ", ".join(ibverbs.OPERATIONS)
            raise ValueError(f"opcode={values['opcode'][:40]}: choose from {known}")


def _begin(card: CardFaults, fault: ArmedFault, values: Mapping[str, str]) -> None:
    """Do what a fault does when it is armed, and say what undoes it; raises `ValueError`."""
    bus, port, effect = card.bus, card.port, fault.effect
    if effect is Effect.PORT_DOWN:
        port.plug(False)
        fault.undo = lambda: port.plug(True)
    elif effect is Effect.DMA_REFUSED:
        bus.refuse(fault.target, refused=True)
        fault.undo = lambda: bus.refuse(fault.target, refused=False)
    elif effect in _ABSENCES:
        if any(other.effect in _ABSENCES for other in card.armed.table()):
            raise ValueError("the function has gone already: `bluebridge fault GUEST clear`")
        bus.set_presence(_ABSENCES[effect])
        fault.undo = lambda: bus.set_presence(Presence.HERE)
    else:
        card.begin(fault, values)


def _target(card: CardFaults, named: NamedFault, values: Mapping[str, str]) -> int:
    """Return the number of what a fault is about, 0 for the adapter; raises `ValueError`."""
    if _of_pairs(named):
        return card.number("qpn", values["qpn"]) if "qpn" in values else ANY
    name = next((name for name in _TARGETS if name in values), "")
    if not name:
        return 0
    if name in ("opcode", "event"):
        return named_value(card.opcodes if name == "opcode" else card.events, name, values[name])
    number = card.number(name, values[name])
    if name == "vector" and number >= card.vectors:
        raise ValueError(f"the adapter has vectors 0 to {card.vectors - 1}")
    return number & ~(PAGE_BYTES - 1) if name == "address" else number


def fail(hca: Adapter, text: str) -> None:
    """Stop an adapter for a reason; raises `ValueError` when that does not fit."""
    if len(text) > CATAS_LETTERS:
        raise ValueError(f"the text has {len(text)} letters; at most {CATAS_LETTERS} fit")
    hca.fail(text)


def _happen(card: CardFaults, named: NamedFault, values: Mapping[str, str]) -> None:
    """Carry out a fault that is over at once; raises `ValueError`."""
    if named.effect is Effect.FUNCTION_RESET:
        card.bus.reset_function()
    elif named.effect is Effect.PORT_FLAP:
        times = number_in("times", values["times"])
        _flap(card, 2 * times, number_in("ms", values["ms"]) / 1000)
    else:
        card.happen(named, values)


def _flap(card: CardFaults, changes: int, seconds: float) -> None:
    """Pull the cable of port 1 or plug it in, `changes` times; it is in at the end."""
    card.port.plug(changes % 2 == 1)
    if changes > 1:
        card.bus.call_later(seconds, lambda: _flap(card, changes - 1, seconds))


def _status(named: NamedFault, values: Mapping[str, str], card: CardFaults | None) -> int:
    """Return the number of the failure that a fault reports, 0 for none; raises `ValueError`."""
    if "error" in values:
        return named_value(ChannelError, "error", values["error"])
    text = values.get("status", "")
    if card is None or not text:
        return 0
    if named.effect is Effect.CQE_STATUS:
        return int(text, 0) if text.startswith("0x") else int(card.syndromes[text])
    status = named_value(card.statuses, "status", text)
    if not status:
        others = ", ".join(each.name for each in card.statuses if each)
        raise ValueError(f"status={text} is no failure: choose from {others}")
    return status
