"""The parsing of a fault rule from its words: `kind=request opcode=SEND count=1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bluebridge.device.fabric.fault_words import ANSWERS, KINDS, TIMED, VALUED, WORDS
from bluebridge.device.fabric.faults.roce_packets import Change, Mark, rewrite_of
from bluebridge.device.fabric.faults.rule import BOTH, IN, NO_LIMIT, OUT, Match, Passage, Rule
from bluebridge.device.layout import ibverbs
from bluebridge.device.layout.net.cm import CmAttribute
from bluebridge.device.layout.net.roce import PACKET_NAMES, Op

MOST_MILLISECONDS: Final = 600_000
LEAST_MEGABITS: Final = 0.001
MOST_MEGABITS: Final = 1_000_000
_DIRECTIONS: Final = (IN, OUT, BOTH)
_OPCODES: Final = (*(op.name for op in Op), *ANSWERS, *PACKET_NAMES.values())


def rule_of(action: str, words: Sequence[str]) -> Rule:
    """Return the rule that does `action`; raises `ValueError` that names the fault in the words."""
    rest = list(words)
    valued = action in VALUED and bool(rest) and (action == "rewrite" or "=" not in rest[0])
    value = rest.pop(0) if valued else ""
    values = _values(rest)
    change: Change | None = Mark() if action == "ecn" else None
    seconds = megabits = 0.0
    if action == "rewrite":
        if not value:
            raise ValueError("rewrite: say HEADER.FIELD=VALUE, then the conditions")
        change = rewrite_of(value)
    elif action == "rate":
        megabits = _real(action, value, LEAST_MEGABITS, MOST_MEGABITS, " Mb/s")
    elif action == "delay" or (value and action in TIMED):
        seconds = _real(action, value, 0, MOST_MILLISECONDS, " milliseconds") / 1000
    direction = values.get("direction", BOTH)
    if direction not in _DIRECTIONS:
        raise ValueError(f"direction={direction}: choose from {', '.join(_DIRECTIONS)}")
    return Rule(
        action,
        " ".join([action, *words]),
        _match(values),
        direction=direction,
        change=change,
        seconds=seconds,
        bits_per_second=megabits * 1e6,
        skip=_integer("skip", values.get("skip", "0")),
        count=_integer("count", values.get("count", str(NO_LIMIT))),
        probability=_real("probability", values.get("probability", "1"), 0, 1),
        seed=_integer("seed", values.get("seed", "0")),
    )


def _values(words: Sequence[str]) -> dict[str, str]:
    """Return the conditions of a rule by their names."""
    known = [word.name for word in WORDS]
    values: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if name not in known or not sign or not value:
            raise ValueError(f"{word!r}: write NAME=VALUE, with a name of {', '.join(known)}")
        if name in values:
            raise ValueError(f"{name} is said twice: leave one out")
        values[name] = value
    return values


def _number(values: dict[str, str], name: str) -> int | None:
    return _integer(name, values[name]) if name in values else None


def _names(values: dict[str, str], name: str, known: Sequence[str]) -> frozenset[str]:
    found = frozenset(values[name].split(",") if name in values else ())
    if not found <= set(known):
        raise ValueError(f"{name}={values[name]}: choose from {', '.join(sorted(set(known)))}")
    return found


def _opcodes(values: dict[str, str]) -> frozenset[str]:
    """Return the operations of a rule, which may have the names of verbs."""
    names = values.get("opcode", "").split(",")
    short = ",".join(name if name in _OPCODES else ibverbs.operation(name) for name in names)
    return _names({"opcode": short} if short else {}, "opcode", _OPCODES)


def _match(values: dict[str, str]) -> Match:
    cm = _names(values, "cm", [attribute.name for attribute in CmAttribute])
    match = Match(
        kinds=_names(values, "kind", KINDS),
        opcodes=_opcodes(values),
        cm=frozenset(int(CmAttribute[name]) for name in cm),
        qpn=_number(values, "qpn"),
        source_qpn=_number(values, "source-qpn"),
        target_qpn=_number(values, "target-qpn"),
    )
    if {"qp", "message", "psn", "transmission"} & values.keys():
        match.passage = _passage(values)
    if "length" in values:
        match.shortest, match.longest = _bounds(values["length"])
    if "immediate" in values:
        value, sign, mask = values["immediate"].partition("/")
        match.immediate = _integer("immediate", value)
        match.immediate_mask = _integer("immediate", mask) if sign else match.immediate_mask
    try:
        match.payload = bytes.fromhex(values.get("payload", ""))
    except ValueError:
        raise ValueError(f"payload={values['payload']}: write bytes in hexadecimal") from None
    return match


def _passage(values: dict[str, str]) -> Passage:
    """Return the conditions on a packet's place in the traffic of its connection."""
    psn = values.get("psn", "")
    relative = psn.startswith("+")
    number = _integer("psn", psn.removeprefix("+")) if psn else None
    return Passage(
        qp=_number(values, "qp"),
        message=_number(values, "message"),
        psn=None if relative else number,
        offset=number if relative else None,
        transmission=_number(values, "transmission"),
    )


def _bounds(text: str) -> tuple[int, int]:
    first, sign, last = text.partition("-")
    shortest = _integer("length", first)
    if not sign:
        return shortest, shortest
    longest = _integer("length", last) if last else NO_LIMIT
    if longest < shortest:
        raise ValueError(f"length={text}: no message is so long; write the least first")
    return shortest, longest


def _real(name: str, text: str, least: float, most: float, unit: str = "") -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not least <= number <= most:
        what = f"{name} {text}" if text else f"{name} without a value"
        raise ValueError(f"{what}: write {least:.10g} to {most:.10g}{unit}")
    return number


def _integer(name: str, text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"{name}={text}: write a number, decimal or 0x...")
    return number
