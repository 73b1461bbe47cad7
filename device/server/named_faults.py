"""Lines of the control socket about faults by name (`bluebridge.device.layout.mlx4.faults`).

arm NAME FAULT [WORD=VALUE ...]   answers with the fault's number, or nothing if it is over
armed [NAME]                      the faults that are armed, with their counts
disarm NAME [NUMBER]              end one, or all of an HCA
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.fabric.faults.parse import rule_of
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.layout import ibverbs
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.ioat import ChannelError
from bluebridge.device.layout.mlx4.bar0 import CATAS_LETTERS, MSIX_VECTORS
from bluebridge.device.layout.mlx4.capabilities import QUERY_ADAPTER, QUERY_DEV_CAP, QUERY_PORT
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.cqe import CompletionStatus, vendor_syndrome
from bluebridge.device.layout.mlx4.eqe import (
    CQ_ERROR_EQE,
    DATA_OFFSET,
    OWNER_OFFSET,
    PORT_MNG_EQE,
    EventType,
)
from bluebridge.device.layout.mlx4.faults import (
    BY_NAME,
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
from bluebridge.device.layout.net.roce import NO_GID
from bluebridge.device.mlx4.armed_faults import ANY, ArmedFault, ArmedFaults
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.mlx4.rings.send_queue import SendRing, Walk
from bluebridge.device.ntb.shape import FaultPoints
from bluebridge.device.pci.bus import Presence
from bluebridge.device.pci.fault_point import Decision, FaultPoint
from bluebridge.device.pci.host import MasterBus
from bluebridge.device.pci.memory import PAGE_BYTES
from bluebridge.device.rings.completion_ring import ACCESS, OVERRUN
from bluebridge.device.server.adapters import Adapter

MOST_MILLISECONDS: Final = 600_000
MOST_TIMES: Final = 1000
MOST_ARMED: Final = 64
_MOST: Final = {
    "ms": MOST_MILLISECONDS, "times": MOST_TIMES, "address": (1 << 64) - 1, "value": (1 << 64) - 1,
    "key": (1 << 32) - 1, "vendor": 0xFF,
}  # fmt: skip
_TARGETS: Final = ("opcode", "qpn", "event", "vector", "address", "key", "index")
_ABSENCES: Final = {
    Effect.REGISTERS_LOST: Presence.NO_REGISTERS, Effect.REMOVED: Presence.GONE
}  # fmt: skip
_ANSWERS: Final = {
    int(Opcode.QUERY_DEV_CAP): QUERY_DEV_CAP,
    int(Opcode.QUERY_PORT): QUERY_PORT,
    int(Opcode.QUERY_ADAPTER): QUERY_ADAPTER,
}
"""The forms of answers of which a field can be wrong, by opcode."""


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

    def _hca_of(self, name: str) -> Hca:
        hca = self._adapter_of(name)
        if not isinstance(hca, Hca):
            raise ValueError(f"{name} is no ConnectX-3: faults by name are of that card so far")
        return hca

    def arm(self, words: Sequence[str]) -> list[str]:
        """Arm a fault; returns its number, or nothing if it is over."""
        named = BY_NAME.get(words[1])
        if named is None:
            raise ValueError(f"there is no fault {words[1][:40]!r}: `bluebridge fault list`")
        values = _values(named, words[2:])
        if named.layer is Layer.BRIDGE:
            return self._arm_bridge(words[0], named, values)
        hca = self._hca_of(words[0])
        if named.effect is Effect.PORT_LATE:
            self._late_port(words[0], hca, _number("ms", values["ms"]) / 1000)
            return []
        if named.effect in ONCE:
            return _happen(hca, named, values)
        fault = _fault(hca.adapter.faults, _target(hca, named, values), named, values)
        if named.effect is Effect.WIRE:
            self._lay(words[0], fault, values["rule"])
        else:
            _begin(hca, fault, values)
        hca.adapter.faults.arm(fault)
        return [str(fault.number)]

    def _arm_bridge(self, name: str, named: NamedFault, values: Mapping[str, str]) -> list[str]:
        bridge = self._bridges.get(name)
        if bridge is None:
            if not self._bridges:
                raise ValueError("there is no bridge: start the pair with `bluebridge up --ntb`")
            raise ValueError(f"there is no bridge {name!r}, but {', '.join(self._bridges)}")
        target = _number("index", values["index"]) if "index" in values else 0
        fault = _fault(bridge.armed, target, named, values)
        bridge.begin(fault)
        bridge.armed.arm(fault)
        return [str(fault.number)]

    def _faults_of(self, name: str) -> ArmedFaults:
        bridge = self._bridges.get(name)
        return self._hca_of(name).adapter.faults if bridge is None else bridge.armed

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

    def _late_port(self, name: str, hca: Hca, seconds: float) -> None:
        """Pull the cable, plug it in later, and let nothing pass for as long again."""
        port, later = hca.adapter.ports[0], hca.adapter.bus.call_later
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
    faults: ArmedFaults, target: int, named: NamedFault, values: Mapping[str, str]
) -> ArmedFault:
    """Return a fault that is not in force yet; raises `ValueError`."""
    if len(faults.table()) >= MOST_ARMED:
        raise ValueError(f"{MOST_ARMED} faults are armed: `bluebridge fault GUEST clear`")
    status = _status(named, values)
    seconds = _number("ms", values["ms"]) / 1000 if "ms" in values else 0.0
    nth = _number("nth", values.get("nth", "1"))
    count = _number("count", values["count"]) if "count" in values else named.count
    if not nth or ("count" in values and not count):
        raise ValueError("nth and count: write 1 or more")
    fault = ArmedFault(
        0, named.name, named.effect, target, status=status, seconds=seconds, nth=nth, count=count
    )
    if named.effect is Effect.CQE_STATUS:
        vendor = values.get("vendor")
        fault.vendor = _number("vendor", vendor) if vendor else vendor_syndrome(status)
    if _of_pairs(named):
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


def _begin(hca: Hca, fault: ArmedFault, values: Mapping[str, str]) -> None:
    """Do what a fault does when it is armed, and say what undoes it; raises `ValueError`."""
    bus, port, effect = hca.adapter.bus, hca.adapter.ports[0], fault.effect
    if effect is Effect.DOORBELL_IGNORED:
        _deafen(hca, fault)
    elif effect is Effect.INTERRUPT_LOST:
        fault.undo = lambda: hca.adapter.eqs.catch_up(fault.target)
    elif effect is Effect.COMMAND_WRONG:
        fault.change = _change(fault.target, values["field"], _number("value", values["value"]))
    elif effect is Effect.PORT_DOWN:
        port.plug(False)
        fault.undo = lambda: port.plug(True)
    elif effect is Effect.GID_VANISHES:
        _empty_gid(hca, fault)
    elif effect is Effect.DMA_REFUSED:
        bus.refuse(fault.target, refused=True)
        fault.undo = lambda: bus.refuse(fault.target, refused=False)
    elif effect is Effect.KEY_LOCKED:
        _lock(hca, fault)
    elif effect in _ABSENCES:
        if any(other.effect in _ABSENCES for other in hca.adapter.faults.table()):
            raise ValueError("the function has gone already: `bluebridge fault GUEST clear`")
        bus.set_presence(_ABSENCES[effect])
        fault.undo = lambda: bus.set_presence(Presence.HERE)


def _change(opcode: int, field: str, value: int) -> Callable[[bytes], bytes]:
    """Return what puts `value` into a field of a command's answer; raises `ValueError`."""
    layout = _ANSWERS.get(opcode)
    if layout is None:
        known = ", ".join(Opcode(each).name for each in _ANSWERS)
        raise ValueError(f"opcode={Opcode(opcode).name}: choose from {known}")
    names = [item.name for item in layout.fields]
    if field not in names:
        near = difflib.get_close_matches(field, names, n=8, cutoff=0.3)
        raise ValueError(
            f"{layout.name} has no field {field[:40]!r}: choose from {', '.join(near or names)}"
        )
    layout.set(bytearray(layout.size), field, value)  # whether it fits

    def change(answer: bytes) -> bytes:
        changed = bytearray(answer)
        layout.set(changed, field, value)
        return bytes(changed)

    return change


def _empty_gid(hca: Hca, fault: ArmedFault) -> None:
    """Empty an entry of the first port's GID table, unless software sets the table anew."""
    port, tables, index = hca.adapter.ports[0], hca.adapter.tables[0], fault.target
    before = list(tables.gids)
    if index >= len(before) or before[index] == NO_GID:
        raise ValueError(f"there is no GID {index}: `bluebridge show GUEST ports` lists them")
    after = [NO_GID if at == index else gid for at, gid in enumerate(before)]
    tables.gids = after
    port.sources_changed()

    def undo() -> None:
        if list(tables.gids) == after:
            tables.gids = before
            port.sources_changed()

    fault.undo = undo


def _lock(hca: Hca, fault: ArmedFault) -> None:
    """Let a memory region count as one that is not registered."""
    regions = hca.adapter.regions
    region = regions.get(regions.index_of(fault.target))
    if region is None:
        raise ValueError(f"there is no key {fault.target:#x}: `bluebridge show GUEST mr`")
    if region.free:
        raise ValueError(
            f"key {fault.target:#x} is not registered: `bluebridge show GUEST mr` lists keys"
        )
    region.free = True

    def undo() -> None:
        region.free = False

    fault.undo = undo


def _target(hca: Hca, named: NamedFault, values: Mapping[str, str]) -> int:
    """Return the number of what a fault is about, 0 for the adapter; raises `ValueError`."""
    if _of_pairs(named):
        return _object(hca, "qpn", values["qpn"]) if "qpn" in values else ANY
    name = next((name for name in _TARGETS if name in values), "")
    if not name:
        return 0
    if name in ("opcode", "event"):
        return _named(Opcode if name == "opcode" else EventType, name, values[name])
    number = _object(hca, name, values[name])
    if name == "vector" and number >= MSIX_VECTORS:
        raise ValueError(f"the adapter has vectors 0 to {MSIX_VECTORS - 1}")
    return number & ~(PAGE_BYTES - 1) if name == "address" else number


def _object(hca: Hca, word: str, text: str) -> int:
    """Return a number, of a queue pair or queue only if there is one; raises `ValueError`."""
    number, adapter = _number(word, text), hca.adapter
    found = {"qpn": adapter.pair, "cqn": adapter.cqs.get, "srqn": adapter.srqs.get}.get(word)
    if found is not None and found(number) is None:
        kind = word.removesuffix("n")
        raise ValueError(
            f"there is no {kind.upper()} {number:#x}: `bluebridge show GUEST {kind}` lists them"
        )
    return number


def fail(hca: Adapter, text: str) -> None:
    """Stop an adapter for a reason; raises `ValueError` when that does not fit."""
    if len(text) > CATAS_LETTERS:
        raise ValueError(f"the text has {len(text)} letters; at most {CATAS_LETTERS} fit")
    hca.fail(text)


def _happen(hca: Hca, named: NamedFault, values: Mapping[str, str]) -> list[str]:
    """Carry out a fault that is over at once; raises `ValueError`."""
    adapter = hca.adapter
    if named.effect is Effect.FATAL:
        fail(hca, values.get("text", "injected"))
    elif named.effect is Effect.PORT_EVENT:
        event = bytes(PORT_MNG_EQE.pack(port=1, changed=int(values["changed"])))
        data = event[DATA_OFFSET:OWNER_OFFSET]
        adapter.eqs.post_async(EventType.PORT_MNG_CHG, data, int(values["subtype"]))
    elif named.effect is Effect.FUNCTION_RESET:
        adapter.bus.reset_function()
    elif named.effect is Effect.PORT_FLAP:
        _flap(hca, 2 * _number("times", values["times"]), _number("ms", values["ms"]) / 1000)
    elif named.effect is Effect.CQ_OVERRUN:
        queue = adapter.cqs.get(_object(hca, "cqn", values["cqn"]))
        assert queue is not None
        queue.fail(OVERRUN)
    else:
        name = named.needs[0]
        number = _object(hca, name, values[name])
        kind = EventType[values["event"]]
        if kind is EventType.CQ_ERROR:  # drivers print its syndrome, which is never 0
            said = bytes(CQ_ERROR_EQE.pack(cqn=number, syndrome=ACCESS))
            adapter.eqs.post_async(kind, said[DATA_OFFSET:OWNER_OFFSET])
        else:
            adapter.eqs.post_numbered(kind, number)
    return []


def _flap(hca: Hca, changes: int, seconds: float) -> None:
    """Pull the cable of port 1 or plug it in, `changes` times; it is in at the end."""
    hca.adapter.ports[0].plug(changes % 2 == 1)
    if changes > 1:
        hca.adapter.bus.call_later(seconds, lambda: _flap(hca, changes - 1, seconds))


def _send_ring(hca: Hca, qpn: int) -> SendRing | None:
    qp = hca.adapter.pair(qpn)
    return qp.sq if qp is not None and isinstance(qp.sq, SendRing) else None


def _deafen(hca: Hca, fault: ArmedFault) -> None:
    """Let a send queue ignore doorbells; if it is there afterwards, it takes what was posted."""
    ring = _send_ring(hca, fault.target)
    if ring is None:
        raise ValueError(f"QP {fault.target:#x} has no send queue: `bluebridge show GUEST qp`")
    if ring.walk is Walk.DEAF:
        raise ValueError(
            f"QP {fault.target:#x} ignores its doorbells already: `bluebridge fault GUEST armed`"
        )
    ring.walk = Walk.DEAF

    def hear() -> None:
        later = _send_ring(hca, fault.target)
        if later is not None and later.walk is Walk.DEAF:
            later.walk = Walk.DUE
            later.go_on()

    fault.undo = hear


def _status(named: NamedFault, values: Mapping[str, str]) -> int:
    """Return the number of the failure that a fault reports, 0 for none; raises `ValueError`."""
    if "error" in values:
        return _named(ChannelError, "error", values["error"])
    text = values.get("status", "")
    if named.effect is Effect.CQE_STATUS and text:
        return int(text, 0) if text.startswith("0x") else int(CompletionStatus[text])
    status = _named(Status, "status", text) if text else 0
    if text and status == Status.OK:
        others = ", ".join(each.name for each in Status if each is not Status.OK)
        raise ValueError(f"status=OK is no failure: choose from {others}")
    return status


def _named(names: type[IntEnum] | type[IntFlag], word: str, text: str) -> int:
    try:
        return int(names[text])
    except KeyError:
        known = ", ".join(names.__members__)
        raise ValueError(f"{word}={text[:40]}: choose from {known}") from None


def _number(word: str, text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    most = _MOST.get(word, (1 << 24) - 1)
    if not 0 <= number <= most:
        raise ValueError(f"{word}={text[:40]}: write a number from 0 to {most}, or 0x...")
    return number
