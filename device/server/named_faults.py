"""Lines of the control socket about faults by name (`bluebridge.device.layout.mlx4.faults`).

    arm NAME FAULT [WORD=VALUE ...]   answers with the fault's number, or nothing if it is over
    armed [NAME]                      the faults that are armed, with their counts
    disarm NAME [NUMBER]              end one, or all of an HCA
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from bluebridge.device.layout.mlx4.bar0 import CATAS_LETTERS
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.mlx4.faults import BY_NAME, ONCE, Effect, NamedFault
from bluebridge.device.mlx4.armed_faults import ArmedFault
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.mlx4.rings.send_queue import SendRing

MOST_MILLISECONDS: Final = 600_000
MOST_TIMES: Final = 1000
MOST_ARMED: Final = 64
_MOST: Final = {"ms": MOST_MILLISECONDS, "times": MOST_TIMES}
_TARGETS: Final = ("opcode", "qpn", "event", "vector")


class NamedFaultCommands:
    """Executes control lines about faults by name on the HCAs that `hca_of` finds."""

    def __init__(self, hca_of: Callable[[str], Hca], names: Sequence[str]) -> None:
        self._hca_of = hca_of
        self._names = names
        self.words: dict[str, Callable[[Sequence[str]], list[str]]] = {
            "arm": self._arm,
            "armed": self._armed,
            "disarm": self._disarm,
        }

    def _arm(self, words: Sequence[str]) -> list[str]:
        if len(words) < 2:
            raise ValueError("write: arm NAME FAULT [WORD=VALUE ...]")
        hca, named = self._hca_of(words[0]), BY_NAME.get(words[1])
        if named is None:
            raise ValueError(f"there is no fault {words[1][:40]!r}: `bluebridge fault list`")
        values = _values(named, words[2:])
        return _happen(hca, named, values) if named.effect in ONCE else [_armed(hca, named, values)]

    def _armed(self, words: Sequence[str]) -> list[str]:
        if len(words) > 1:
            raise ValueError("write: armed [NAME]")
        lines = []
        for name in words or self._names:
            for fault in self._hca_of(name).adapter.faults.table():
                lines.append(
                    f"{fault.number} {name} {fault.name} of {fault.target:#x}: "
                    f"matched {fault.matched}, taken {fault.taken}"
                )
        return lines

    def _disarm(self, words: Sequence[str]) -> list[str]:
        if len(words) not in (1, 2):
            raise ValueError("write: disarm NAME [NUMBER]")
        hca = self._hca_of(words[0])
        found = hca.adapter.faults.table()
        if len(words) == 2:
            found = [fault for fault in found if str(fault.number) == words[1]]
            if not found:
                raise ValueError(f"no fault {words[1][:20]!r} is armed on {words[0]}")
        hca.adapter.faults.clear(found)
        for fault in found:
            if fault.effect is Effect.DOORBELL_IGNORED:
                _hear(hca, fault.target)
        return []


def _values(named: NamedFault, words: Sequence[str]) -> dict[str, str]:
    """Return the values of all parameters of a fault; raises `ValueError`."""
    values: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not value or name not in named.parameters:
            raise ValueError(
                f"{word[:40]!r}: {named.name} takes {', '.join(named.parameters) or 'nothing'}"
            )
        if name in values:
            raise ValueError(f"{name} is said twice")
        values[name] = value
    missing = [name for name in named.needs if name not in values]
    if missing:
        raise ValueError(f"{named.name} needs {' and '.join(missing)}")
    return {**named.fixed, **values}


def _armed(hca: Hca, named: NamedFault, values: Mapping[str, str]) -> str:
    """Arm a fault and return its number; raises `ValueError`."""
    faults, target = hca.adapter.faults, _target(hca, values)
    if len(faults.table()) >= MOST_ARMED:
        raise ValueError(f"{MOST_ARMED} faults are armed: `bluebridge fault GUEST clear`")
    status = 0
    if "status" in values:
        status = _syndrome(values) if named.effect is Effect.CQE_STATUS else _status(values)
    seconds = _number("ms", values["ms"]) / 1000 if "ms" in values else 0.0
    nth = _number("nth", values.get("nth", "1"))
    count = _number("count", values["count"]) if "count" in values else named.count
    if not nth or ("count" in values and not count):
        raise ValueError("nth and count begin at 1")
    if named.effect is Effect.DOORBELL_IGNORED:
        _send_ring(hca, target).deaf = True
    number = faults.next_number()
    faults.arm(
        ArmedFault(
            number, named.name, named.effect, target,
            status=status, seconds=seconds, nth=nth, count=count,
        )
    )  # fmt: skip
    return str(number)


def _target(hca: Hca, values: Mapping[str, str]) -> int:
    """Return the number of what a fault is about, which must be there; raises `ValueError`."""
    name = next(name for name in _TARGETS if name in values)
    if name == "opcode":
        return _named(Opcode, name, values[name])
    if name == "event":
        return _named(EventType, name, values[name])
    number = _number(name, values[name])
    if name == "vector" and number >= hca.adapter.config.msix_vectors:
        raise ValueError(f"the adapter has vectors 0 to {hca.adapter.config.msix_vectors - 1}")
    if name == "qpn" and hca.adapter.pair(number) is None:
        raise ValueError(f"there is no QP {number:#x}: `bluebridge show GUEST qp` lists them")
    return number


def _happen(hca: Hca, named: NamedFault, values: Mapping[str, str]) -> list[str]:
    """Carry out a fault that is over at once; raises `ValueError`."""
    adapter = hca.adapter
    if named.effect is Effect.FATAL:
        text = values.get("text", "injected")
        if len(text) > CATAS_LETTERS:
            raise ValueError(f"the text has {len(text)} letters; at most {CATAS_LETTERS} fit")
        hca.fail(text)
    elif named.effect is Effect.PORT_FLAP:
        _flap(hca, 2 * _number("times", values["times"]), _number("ms", values["ms"]) / 1000)
    elif named.effect is Effect.CQ_OVERRUN:
        cqn = _number("cqn", values["cqn"])
        queue = adapter.cqs.get(cqn)
        if queue is None:
            raise ValueError(f"there is no CQ {cqn:#x}: `bluebridge show GUEST cq` lists them")
        queue.overrun()
    else:
        name = named.needs[0]
        number = _number(name, values[name])
        if name == "qpn" and adapter.pair(number) is None:
            raise ValueError(f"there is no QP {number:#x}: `bluebridge show GUEST qp` lists them")
        if name == "cqn" and adapter.cqs.get(number) is None:
            raise ValueError(f"there is no CQ {number:#x}: `bluebridge show GUEST cq` lists them")
        if name == "srqn" and adapter.srqs.get(number) is None:
            raise ValueError(f"there is no SRQ {number:#x}: `bluebridge show GUEST srq` lists them")
        adapter.eqs.post_numbered(EventType[values["event"]], number)
    return []


def _flap(hca: Hca, changes: int, seconds: float) -> None:
    """Pull the cable of port 1 or plug it in, `changes` times; it is in at the end."""
    hca.adapter.ports[0].plug(changes % 2 == 1)
    if changes > 1:
        hca.adapter.bus.call_later(seconds, lambda: _flap(hca, changes - 1, seconds))


def _send_ring(hca: Hca, qpn: int) -> SendRing:
    qp = hca.adapter.pair(qpn)
    if qp is None or not isinstance(qp.sq, SendRing):
        raise ValueError(f"QP {qpn:#x} has no send queue")
    if qp.sq.deaf:
        raise ValueError(f"QP {qpn:#x} ignores its doorbells already")
    return qp.sq


def _hear(hca: Hca, qpn: int) -> None:
    """Let a send queue, if it is still there, take what was posted meanwhile."""
    qp = hca.adapter.pair(qpn)
    if qp is not None and isinstance(qp.sq, SendRing) and qp.sq.deaf:
        qp.sq.deaf = False
        qp.sq.go_on()


def _status(values: Mapping[str, str]) -> int:
    status = _named(Status, "status", values["status"])
    if status == Status.OK:
        raise ValueError("status=OK is no failure")
    return status


def _syndrome(values: Mapping[str, str]) -> int:
    text = values["status"]
    return int(text, 0) if text.startswith("0x") else int(CompletionStatus[text])


def _named(names: type[IntEnum], word: str, text: str) -> int:
    try:
        return int(names[text])
    except KeyError:
        known = ", ".join(each.name for each in names)
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
