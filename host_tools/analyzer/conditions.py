"""A condition on events: words, regular expressions and comparisons joined by `and`.

    NAK                              the line of the event contains it
    /qpn=0x4[89]/                    the line matches a regular expression
    syndrome!=0 and device=a         fields of the event compared: = != < <= > >=

An event without the field fulfils no comparison of it, not even `!=`. `status` is that of firmware
commands and of completions of work requests. Names are those of libibverbs, with their prefix
(`IBV_WC_RETRY_EXC_ERR`) or without, and those of the card.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bluebridge.device.buslog.follow import Follower
from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.device.buslog.record import HEAD, host_of
from bluebridge.device.buslog.wire import packet_of
from bluebridge.device.layout.buslog import SEND_ENTRIES, Kind, What
from bluebridge.device.layout.ibverbs import bare, operation
from bluebridge.device.layout.net.roce import Op, Syndrome
from bluebridge.host_tools.analyzer import fields, packets, rtrs
from bluebridge.host_tools.analyzer.devices.model import names_of
from bluebridge.host_tools.analyzer.devices.registry import adapter_of, beyond_adapters
from bluebridge.host_tools.analyzer.event_lines import KINDS, Describe, plain_line
from bluebridge.host_tools.analyzer.ntrdma.decoder import Decoder
from bluebridge.host_tools.analyzer.ntrdma.stores import KINDS as STORE_KINDS
from bluebridge.host_tools.analyzer.outcomes import command_status, completion_failure
from bluebridge.host_tools.analyzer.transaction import OK

Value = int | str

_PAIR: Final = re.compile(r"([A-Za-z_][\w.]*)=('[^']*'|[^\s,;]+)")
_OP_AT: Final = 1
_SYNDROME_AT: Final = 2
"""Indices of the operation and the syndrome in the values of `HEAD`."""
_GOOD: Final[list[Value]] = [OK, "SUCCESS", 0]

_QUOTED: Final = r"\"[^\"]*\"|'[^']*'|/(?:\\/|[^/])*/"
_AND: Final = re.compile(rf"((?:{_QUOTED}|(?!\s+and\s).)*?)(?:\s+and\s+|$)", re.DOTALL)
_STRAY: Final = re.compile(r"^and(\s|$)|\sand$")
"""Matches an `and` at the beginning or the end of a term."""
_COMPARISON: Final = re.compile(rf"([A-Za-z_][\w.]*)\s*(!=|<=|>=|=|<|>)\s*({_QUOTED}|\S+)")
_NO_VALUE: Final = re.compile(r"[A-Za-z_][\w.]*\s*(!=|<=|>=|=|<|>)")
_PATTERN_SIGNS: Final = frozenset("[](){}*+?|^$\\")
_ORDER: Final[dict[str, Callable[[int, int], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_WORDS: Final[dict[str, Callable[[], frozenset[str]]]] = {
    "kind": lambda: frozenset((*KINDS, *(kind.name.lower() for kind in Kind))),
    "what": lambda: frozenset(what.name.lower() for what in What),
    "status": fields.statuses,
    "syndrome": fields.syndromes,
    "opcode": fields.opcodes,
}
"""The permitted values of the fields that have a fixed set of values."""
_OF_VERBS: Final = ("status", "syndrome", "opcode")
"""The fields whose values may have the prefix of an enumeration of verbs."""
_CLOSE: Final = 0.6
"""Least similarity (`difflib`) at which a known name is suggested for an unknown one."""

Term = Callable[[Event, Describe], bool]


def _kind(event: Event) -> list[Value]:
    groups = [name for name, kinds in KINDS.items() if event.kind in kinds]
    return [event.kind.name.lower(), *groups]


def _syndrome(event: Event) -> list[Value]:
    """Return the syndrome of a response (0 for an acknowledgement) or of a completion in error."""
    if event.kind is Kind.WIRE and event.what is What.RESPONSE and len(event.data) >= HEAD.size:
        return _syndrome_spellings(HEAD.unpack_from(event.data)[_SYNDROME_AT])
    if (packet := packet_of(event)) is not None:
        code = packets.syndrome_of(packet)
        return [] if code is None else _syndrome_spellings(code)
    return _failed_completion(event)


def _syndrome_spellings(code: int) -> list[Value]:
    of_name = Syndrome.RNR_NAK if code & 0x60 == Syndrome.RNR_NAK else code
    return [code, *(each.name for each in Syndrome if each == of_name)]


def _status(event: Event) -> list[Value]:
    if event.kind is Kind.COMMAND:
        return [status] if (status := command_status(event)) else []
    if event.what is not What.CQE or event.kind is not Kind.DMA_WRITE:
        return []
    return _failed_completion(event) or _GOOD


def _failed_completion(event: Event) -> list[Value]:
    code = completion_failure(event)
    return [] if code is None else [code, *names_of(adapter_of(event.device).statuses, code)]


def _opcode(event: Event) -> list[Value]:
    """Return the operation of a message, an entry of a queue or a firmware command."""
    name = ""
    if event.kind is Kind.COMMAND:
        return [event.values["name"]]
    if event.kind is Kind.WIRE and event.what is What.REQUEST and len(event.data) >= HEAD.size:
        code = HEAD.unpack_from(event.data)[_OP_AT]
        name = next((each.name for each in Op if each == code), "")
    elif (packet := packet_of(event)) is not None:
        names = packets.operation(packet)
        return [spelling for each in names for spelling in fields.spellings(each)]
    elif event.what is What.CQE and event.kind is Kind.DMA_WRITE:
        name = adapter_of(event.device).operation(event.data)
    elif event.what in SEND_ENTRIES:
        adapter = adapter_of(event.device)
        name = adapter.send_head(event.data).operation if len(event.data) >= adapter.head else ""
    return [*fields.spellings(name)] if name else []


DIRECT: Final[dict[str, Callable[[Event], list[Value]]]] = {
    "kind": _kind,
    "what": lambda event: [event.what.name.lower()],
    "device": lambda event: [event.device],
    "guest": lambda event: [host_of(event.device)],
    "bar": lambda event: [event.bar] if event.kind in KINDS["mmio"] else [],
    "vector": lambda event: [event.address] if event.kind is Kind.IRQ else [],
    "address": lambda event: [event.address],
    "length": lambda event: [event.length],
    "obj": lambda event: [event.obj],
    "syndrome": _syndrome,
    "status": _status,
}
"""Functions for the fields that are known without the event's words."""


def values(event: Event, name: str, words: Describe) -> Iterator[list[Value]]:
    """Yield the values of a field, which may occur several times, each in all its spellings."""
    told = event.told
    if told is not None and name in told.values:
        value = told.values[name]
        word = told.fact.fields[name].word(value)
        yield [value] if word is None else [value, word]
        return
    if name in DIRECT:
        found = DIRECT[name](event)
        if found:
            yield found
        return
    if name == "opcode" and (found := _opcode(event)):
        yield found
    if told is not None:
        return
    for field, text in _PAIR.findall(words(event)):
        if field.rpartition(".")[2] == name or field == name:
            yield [read(text)]


def read(text: str) -> Value:
    """Convert the text of a value to a number (`12`, `0x0c`) or leave it a word."""
    try:
        return int(text, 0)
    except ValueError:
        return text.strip("'\"")


class ConditionError(ValueError):
    """An invalid condition; the text is one line that says what to write instead."""


@dataclass(frozen=True)
class Condition:
    """A condition on events; `matches` returns whether all of its terms hold for an event."""

    text: str
    _terms: tuple[Term, ...]

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse a condition such as `kind=cqe status!=OK`; raises `ConditionError`."""
        terms = [each.strip() for each in _split(text)]
        if not all(terms) or any(_STRAY.search(each) for each in terms):
            raise ConditionError(f"{text!r}: a condition is missing beside `and`")
        found = [_term(each) for each in terms]
        # What is known without the words of the event comes first: most events go no further.
        return cls(text, tuple(term for _, term in sorted(found, key=lambda one: one[0])))

    def matches(self, event: Event, words: Describe) -> bool:
        """Return whether an event fulfils the condition; `words` describes the event in a line."""
        return all(term(event, words) for term in self._terms)


def _split(text: str) -> Sequence[str]:
    text = text.strip()
    found, position = [], 0
    while position < len(text):
        match = _AND.match(text, position)
        if match is None or match.end() == position:
            return [text]
        found.append(match[1])
        position = match.end()
    return found or [""]


def _term(text: str) -> tuple[bool, Term]:
    """Parse a term; return whether it needs the words of an event, and its test of one."""
    if _NO_VALUE.fullmatch(text):
        raise ConditionError(f"{text}: a value is missing; to search for this text write /{text}/")
    compared = _COMPARISON.fullmatch(text)
    if compared is None:
        return True, _pattern(text)
    name, sign, wanted = compared[1], compared[2], compared[3]
    _check_field(text, name)
    quoted = len(wanted) > 1 and wanted[0] == wanted[-1] and wanted[0] in "\"'"
    if not quoted and wanted[0] in "\"'/":
        raise ConditionError(f"{text}: compare with a whole value, or search for /expression/")
    if not quoted and _PATTERN_SIGNS & set(wanted):
        raise ConditionError(f"{text}: for a regular expression write /{text}/")
    value = wanted.strip("\"'") if quoted else read(wanted)
    if name in _OF_VERBS and isinstance(value, str):
        value = operation(value) if name == "opcode" else bare(value)
    _check_value(name, sign, value)
    return name not in DIRECT, _comparison(name, sign, value)


def _pattern(text: str) -> Term:
    slashes = len(text) > 1 and text[0] == text[-1] == "/"
    quotes = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    inner = text[1:-1] if slashes or quotes else text
    try:
        found = re.compile(re.escape(inner) if quotes else inner).search
    except re.error as error:
        raise ConditionError(f"{text}: no regular expression: {error}") from None
    return lambda event, words: found(plain_line(event, words)) is not None


def _comparison(name: str, sign: str, wanted: Value) -> Term:
    if sign in _ORDER:
        number, holds = int(wanted), _ORDER[sign]

        def ordered(event: Event, words: Describe) -> bool:
            return any(
                isinstance(value, int) and holds(value, number)
                for ways in values(event, name, words)
                for value in ways
            )

        return ordered
    folded = _folded(wanted)

    def equal(event: Event, words: Describe) -> bool:
        found = [folded in map(_folded, ways) for ways in values(event, name, words)]
        return bool(found) and (any(found) if sign == "=" else not all(found))

    return equal


def _folded(value: Value) -> Value:
    return value.lower() if isinstance(value, str) else value


def _check_value(name: str, sign: str, value: Value) -> None:
    if sign in _ORDER and not isinstance(value, int):
        raise ConditionError(f"{name}{sign}{value}: {value} is no number")
    if name not in _WORDS or (name in _OF_VERBS and isinstance(value, int)):
        return
    known = _WORDS[name]()
    if str(value).lower() not in map(str.lower, known):
        near = _near(str(value), known)
        raise ConditionError(
            f"{name}{sign}{value}: {near}{name} is one of {', '.join(sorted(known))}"
        )


def _check_field(text: str, name: str) -> None:
    """Raise `ConditionError` for a field that no line has: its comparison would wait for ever."""
    common = {*DIRECT, "opcode", *fields.IN_WORDS}
    if name in common or name.rpartition(".")[2] in fields.of_tables() | common:
        return
    near = _near(name, common) or _near(name, fields.of_tables())
    raise ConditionError(
        f"{text}: no field {name}; {near}there are {', '.join(sorted(common))}, and those of "
        "registers, events and packets: `python -m bluebridge.device.layout.reference` lists them"
    )


def _near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name.lower(), [each.lower() for each in known], 1, _CLOSE)
    found = next((each for each in known if close and each.lower() == close[0]), "")
    return f"did you mean {found}? " if found else ""


class LiveWords:
    """Describes the events of a log that is being written, in order, as `log --decode` does.

    `in_order`: it must see every event, since earlier stores tell what one of NTRDMA is.
    """

    def __init__(self, reader: LogReader, *, at_end: bool) -> None:
        self._describe = rtrs.decoder_of_live(reader)
        self.in_order = beyond_adapters(reader.meta["devices"])
        before = LogReader(reader.folder).events(Filter(STORE_KINDS)) if at_end else iter(())
        self._ntrdma = Decoder(before) if self.in_order else None
        self._last: tuple[int, str] = (-1, "")

    def __call__(self, event: Event) -> str:
        """Return the event in words; a repeated call for the same event returns the same words."""
        if self._last[0] != event.number:
            text = self._describe(event)
            more = "" if self._ntrdma is None else self._ntrdma.more(event)
            self._last = event.number, f"{text} NTRDMA {more}" if more else text
        return self._last[1]


class LiveSearch:
    """The matching events of a log, with `at_end` those from now on; raises `LogError`."""

    def __init__(self, reader: LogReader, condition: Condition, *, at_end: bool = False) -> None:
        self._follower = Follower(reader, at_end=at_end)
        self._condition = condition
        self.words = LiveWords(reader, at_end=at_end)

    @property
    def skipped(self) -> int:
        """Number of events that the log's limit deleted before the search reached them."""
        return self._follower.skipped

    def new(self) -> Iterator[Event]:
        """Yield the events recorded since the last call that fulfil the condition."""
        for event in self._follower.new():
            if self.words.in_order:
                self.words(event)
            if self._condition.matches(event, self.words):
                yield event
