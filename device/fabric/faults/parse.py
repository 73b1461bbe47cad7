"""The parsing of a fault rule from its words: `kind=request opcode=SEND count=1`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bluebridge.device.fabric.fault_words import ANSWERS, KINDS, TIMED, WORDS
from bluebridge.device.fabric.faults.roce_packets import NAMES, Change, Mark, rewrite_of
from bluebridge.device.fabric.faults.rule import BOTH, IN, NO_LIMIT, OUT, Match, Passage, Rule
from bluebridge.device.layout.net.cm import CmAttribute
from bluebridge.device.layout.net.roce import Op

MOST_SECONDS: Final = 600.0
LEAST_MEGABITS: Final = 0.001
MOST_MEGABITS: Final = 1_000_000
_WORD_BITS: Final = 32
_OPCODES: Final = frozenset((*(op.name for op in Op), *ANSWERS, *NAMES.values()))


def rule_of(action: str, words: Sequence[str]) -> Rule:
    """Return the rule that does `action`; raises `ValueError` that names the fault in the words."""
    rest = list(words)
    seconds = 0.0
    if action in TIMED and rest and "=" not in rest[0]:
        seconds = _seconds(rest.pop(0))
    elif action == "delay":
        raise ValueError("delay: say how many milliseconds, then the conditions")
    change: Change | None = Mark() if action == "ecn" else None
    if action == "rewrite":
        if not rest:
            raise ValueError("rewrite: say HEADER.FIELD=VALUE, then the conditions")
        change = rewrite_of(rest.pop(0))
    megabits = _megabits(rest) if action == "rate" else 0.0
    values = _values(rest)
    direction = values.get("direction", BOTH)
    if direction not in (IN, OUT, BOTH):
        raise ValueError(f"direction={direction}: choose from {IN}, {OUT}, {BOTH}")
    return Rule(
        action,
        " ".join([action, *words]),
        _match(values),
        direction=direction,
        change=change,
        seconds=seconds,
        bits_per_second=megabits * 1e6,
        skip=_number(values, "skip", 0),
        count=_number(values, "count", NO_LIMIT),
        probability=_probability(values),
        seed=_number(values, "seed", 0),
    )


def _megabits(rest: list[str]) -> float:
    """Take the rate in Mb/s in front of the conditions."""
    word = rest.pop(0) if rest else ""
    try:
        megabits = float(word)
    except ValueError:
        megabits = 0.0
    if not LEAST_MEGABITS <= megabits <= MOST_MEGABITS:
        raise ValueError(f"rate {word}: write Mb/s, {LEAST_MEGABITS} to {MOST_MEGABITS}")
    return megabits


def _seconds(word: str) -> float:
    try:
        seconds = float(word) / 1000
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= MOST_SECONDS:
        raise ValueError(f"{word!r} is no time in milliseconds from 0 to {MOST_SECONDS * 1000:.0f}")
    return seconds


def _values(words: Sequence[str]) -> dict[str, str]:
    known = [word.name for word in WORDS]
    values = {}
    for word in words:
        name, sign, value = word.partition("=")
        if name not in known or not sign or not value:
            raise ValueError(f"{word!r}: write NAME=VALUE, with a name of {', '.join(known)}")
        if name in values:
            raise ValueError(f"{name} is said twice")
        values[name] = value
    return values


def _match(values: dict[str, str]) -> Match:
    match = Match(
        kinds=_names(values, "kind", frozenset(KINDS)),
        opcodes=_names(values, "opcode", _OPCODES),
        cm=_attributes(values),
        qpn=_optional(values, "qpn"),
        source_qpn=_optional(values, "source-qpn"),
        target_qpn=_optional(values, "target-qpn"),
        payload=_hex(values),
    )
    if {"qp", "message", "psn", "transmission"} & values.keys():
        match.passage = _passage(values)
    match.shortest, match.longest = _bounds(values)
    if "immediate" in values:
        value, sign, mask = values["immediate"].partition("/")
        match.immediate = _integer("immediate", value)
        match.immediate_mask = _integer("immediate", mask) if sign else (1 << _WORD_BITS) - 1
    return match


def _passage(values: dict[str, str]) -> Passage:
    """Return the conditions on a packet's place in the traffic of its connection."""
    psn = values.get("psn", "")
    relative = psn.startswith("+")
    number = _integer("psn", psn.removeprefix("+")) if psn else None
    return Passage(
        qp=_optional(values, "qp"),
        message=_optional(values, "message"),
        psn=None if relative else number,
        offset=number if relative else None,
        transmission=_optional(values, "transmission"),
    )


def _names(values: dict[str, str], name: str, known: frozenset[str]) -> frozenset[str]:
    if name not in values:
        return frozenset()
    found = frozenset(values[name].split(","))
    if found - known:
        raise ValueError(f"{name}={values[name]}: choose from {', '.join(sorted(known))}")
    return found


def _attributes(values: dict[str, str]) -> frozenset[int]:
    names = frozenset(attribute.name for attribute in CmAttribute)
    return frozenset(int(CmAttribute[name]) for name in _names(values, "cm", names))


def _bounds(values: dict[str, str]) -> tuple[int, int]:
    if "length" not in values:
        return 0, NO_LIMIT
    first, sign, last = values["length"].partition("-")
    shortest = _integer("length", first)
    if not sign:
        return shortest, shortest
    longest = _integer("length", last) if last else NO_LIMIT
    if longest < shortest:
        raise ValueError(f"length={values['length']}: no message is so long; write the least first")
    return shortest, longest


def _hex(values: dict[str, str]) -> bytes:
    try:
        return bytes.fromhex(values.get("payload", ""))
    except ValueError:
        raise ValueError(f"payload={values['payload']}: write bytes in hexadecimal") from None


def _probability(values: dict[str, str]) -> float:
    text = values.get("probability", "1")
    try:
        probability = float(text)
    except ValueError:
        probability = -1.0
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"probability={text}: write a number from 0 to 1")
    return probability


def _number(values: dict[str, str], name: str, otherwise: int) -> int:
    return _integer(name, values[name]) if name in values else otherwise


def _optional(values: dict[str, str], name: str) -> int | None:
    return _integer(name, values[name]) if name in values else None


def _integer(name: str, text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"{name}={text}: write a number, decimal or 0x...")
    return number
