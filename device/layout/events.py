"""What a device tells in the bus log beside its transfers: a row for each kind of fact.

A record has the number of its fact and the values of the fields. The line of text is made where it
is printed: nothing reads it back, so a template may be reworded, which changes no record. Who
changes the fields of a fact raises `bluebridge.device.layout.buslog.VERSION`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from string import Formatter
from struct import Struct
from typing import Any, Final, NamedTuple

from bluebridge.device.layout.buslog import Kind

Value = int | str
Values = dict[str, Any]
"""The values of a fact's fields by name: each is a number or a text, as its form says."""
_COMMAND_FIELDS: Final = "name op_mod slot word number status syndrome us reason"
_COMMAND_TEXT: Final = (
    "{name}[ op_mod={op_mod:#x}] slot={slot}[ {word}={number:#x}] {status}[ "
    "syndrome={syndrome:#010x}] {us} us[: {reason}]"
)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a field: an unsigned number of 64 bits, or a `text`.

    `noun` is that of the object which the number names, `words` are those of the numbers from 0 on.
    One that `varies` differs between two runs of the same program. A number is printed divided by
    `per`.
    """

    text: bool = False
    noun: str = ""
    words: tuple[str, ...] = ()
    varies: bool = False
    per: int = 1

    def word(self, value: Value) -> str | None:
        """Return the word for a number, None if it has none."""
        return self.words[value] if isinstance(value, int) and value < len(self.words) else None

    def shown(self, value: Any) -> Any:
        """Return a value as a template prints it."""
        word = self.word(value)
        if word is not None:
            return word
        return value if self.per == 1 else value / self.per


_NUMBER, _TEXT, _UP = Form(), Form(text=True), ("down", "up")
_FORMS = dict.fromkeys(
    ("action", "cause", "context", "direction", "erratum", "error", "line", "mac", "message",
     "name", "operation", "presence", "reason", "status", "text", "to", "verb", "what", "word"),
    _TEXT,
) | {
    "qpn": Form(noun="QP"), "cqn": Form(noun="CQ"), "eqn": Form(noun="EQ"),
    "queue": Form(noun="queue"), "port": Form(noun="port"), "channel": Form(noun="channel"),
    "us": Form(varies=True), "delay": Form(per=1000),
    "rate": Form(per=1_000_000), "target": Form(per=1_000_000), "alpha": Form(per=1000),
    "on": Form(words=("off", "on")), "cable": Form(words=("out", "in")), "link": Form(words=_UP),
    "lost": Form(
        words=("without bus master is lost", "is not set up", "waits until it is set up")
    ),
    "offered": Form(words=("", ", offered every millisecond")),
}  # fmt: skip
"""The forms of fields by their names; all others are numbers."""


class Fact(Enum):
    """Facts, each with its number, its fields, a template of its text, and the kind of its record.

    The first field may name the object that the fact is about. A part of a template in brackets is
    left out when all of its fields are 0 or empty.
    """

    COMMAND = (
        1, "name op_mod in_mod in_param status us reason",
        "{name} op_mod={op_mod} in_mod={in_mod:#x} in={in_param:#x} {status} {us} us[: {reason}]",
        Kind.COMMAND,
    )  # fmt: skip
    MARK = 2, "text", "mark: {text}"
    """A mark of the whole pair."""
    GUEST_MARK = 3, "text", "mark: {text}"
    """A mark of the guest of the device."""
    LOG_STOPPED = 4, "reason", "the log was stopped: {reason}"
    EVENTS_LOST = 5, "count", "the disk is too slow: {count} events are missing so far"
    CONTROL = 6, "line error", "{line}[: refused: {error}]", Kind.CONTROL

    # A function, its bus and its ports.
    BUS_MASTER = 7, "on", "bus master {on}"
    RESET = 8, "cause", "{cause} reset", Kind.RESET
    INTERRUPT_LOST = 9, "vector lost", "interrupt {vector} {lost}"
    MESSAGE_LOST = 10, "address", "an interrupt message to {address:#x} without bus master is lost"
    PRESENCE = 11, "presence", "presence: {presence}"
    MASTER_ABORT = 12, "reason address", "master abort: {reason} at {address:#x}"
    LINK = 13, "port cable link", "port {port}: cable {cable}, link {link}", Kind.LINK
    INTERNAL_ERROR = 14, "reason", "internal error: {reason}"

    # Bridges and DMA engines.
    BRIDGE_LINK = 15, "link", "link {link}"
    WINDOW_OPENED = (
        16, "window length address", "window {window} shows {length:#x} bytes at {address:#x}",
    )  # fmt: skip
    WINDOW_CLOSED = 17, "window", "window {window} is closed"
    WINDOW_EXCEEDED = (
        18, "window offset count",
        "window {window}: the peer's access at {offset:#x} is beyond what it shows ({count})",
    )  # fmt: skip
    BRIDGE_HANGS = 19, "erratum", "erratum {erratum}: the bridge hangs"
    BRIDGE_MIGHT_HANG = 20, "erratum count", "erratum {erratum}: would have hung ({count})"
    CHANNEL_HALTED = (
        21, "channel error address", "channel {channel} halted: {error} at {address:#x}",
    )  # fmt: skip

    # Faults that somebody asked for.
    NAMED_FAULT = (
        22, "qpn fault name what", "fault {fault} {name}:[ {what}][ QP {qpn:#x}]", Kind.FAULT,
    )  # fmt: skip
    RULE = (
        23, "fault name rule action verb direction message operation to count qpn dqpn psn "
        "bytes part",
        "[fault {fault} {name}: ]rule {rule} {verb} ({direction}): {message}[ {operation}][ to "
        "{to}][ count={count}][ qpn={qpn:#x}][ > qpn={dqpn:#x} psn={psn:#x}] bytes={bytes}[ part "
        "at {part}]", Kind.FAULT,
    )  # fmt: skip

    # Work requests and messages of queue pairs.
    WORK_REFUSED = 24, "qpn index reason", "QP {qpn:#x} WQE {index}: {reason}"
    RECEIVE_FAILED = 25, "qpn reason", "QP {qpn:#x} receive: {reason}"
    NO_ANSWER = (
        26, "qpn psn retry most",
        "QP {qpn:#x}: no answer for PSN {psn:#x}, retry {retry} of {most}",
    )  # fmt: skip
    SEQUENCE_ERROR = (
        27, "qpn psn retry most",
        "QP {qpn:#x}: sequence error, sending again from PSN {psn:#x}, retry {retry} of {most}",
    )  # fmt: skip
    RETRIES_USED_UP = 28, "qpn psn most", "QP {qpn:#x}: {most} retries for PSN {psn:#x} are used up"
    NOT_READY = (
        29, "qpn retry delay offered",
        "QP {qpn:#x}: RNR NAK, retry {retry} in {delay:g} ms{offered}",
    )  # fmt: skip
    NOT_READY_USED_UP = 30, "qpn most", "QP {qpn:#x}: {most} RNR retries are used up"
    REFUSAL = 31, "qpn syndrome psn", "QP {qpn:#x}: syndrome {syndrome:#x} for PSN {psn:#x}"
    RATE = (
        32, "qpn rate target alpha cause",
        "QP {qpn:#x}: rate {rate:.1f} Mb/s, target {target:.1f} Mb/s, alpha {alpha:.3f} ({cause})",
    )  # fmt: skip
    """Rates are in bits per second, `alpha` in thousandths."""
    NAK = (
        33, "qpn syndrome operation psn reason",
        "QP {qpn:#x}: NAK {syndrome:#x} for[ {operation}] PSN {psn:#x}: {reason}",
    )  # fmt: skip
    DROPPED = 34, "qpn operation reason", "QP {qpn:#x}: dropped[ {operation}]: {reason}"
    REPEATED_READ_REFUSED = (
        35, "qpn", "QP {qpn:#x}: a read that came again is not permitted any more",
    )  # fmt: skip
    DATAGRAM_DROPPED = 36, "qpn reason", "QP {qpn:#x}: datagram dropped, {reason}"
    FOREIGN_MESSAGE = (
        37, "qpn mac reason count",
        "QP {qpn:#x}: dropped a message of {mac}, {reason} ({count} so far)",
    )  # fmt: skip
    PACKET_LOST = (
        38, "port count", "port {port}: dropped a packet, too much waits for it ({count} so far)",
    )  # fmt: skip
    SCATTERED = (
        39, "qpn pieces rest bytes first",
        "QP {qpn:#x}: {pieces} pieces of memory; the next transfer stands for the last {rest}, "
        "{bytes} bytes of which only {first} are at its address",
    )  # fmt: skip

    # Queues.
    SCATTERED_RING = (
        40, "queue pieces rest bytes first",
        "queue {queue:#x}: {pieces} pieces of memory; the next transfer is the last {rest}, "
        "{bytes} bytes of which only {first} are at its address",
    )  # fmt: skip
    SEND_QUEUE_LOST = 41, "qpn reason", "QP {qpn:#x}: send queue: {reason}"
    CQ_LOST = 42, "cqn reason", "CQ {cqn:#x}: {reason}"
    NO_CQ = 43, "qpn cqn", "QP {qpn:#x}: its CQ {cqn:#x} does not exist"
    NO_EQ = 44, "eqn event", "event {event:#x} has no EQ[: EQ {eqn:#x} does not exist]"
    EQ_FULL = 45, "eqn", "EQ {eqn:#x} is not served, events are lost"
    EQ_LOST = 46, "eqn reason", "EQ {eqn:#x}: {reason}"
    BLUEFLAME_KNOWN = (
        47, "qpn page entry", "BlueFlame page {page}: entry {entry} was fetched before",
    )  # fmt: skip
    BLUEFLAME_REFUSED = 48, "qpn page reason", "BlueFlame page {page}: {reason}: fetched instead"
    BLUEFLAME_LOST = 49, "qpn page reason count", "BlueFlame page {page}: {reason} ({count} so far)"

    # Commands of a queue in memory, as mlx5 has it.
    FIRMWARE_COMMAND = 50, _COMMAND_FIELDS, _COMMAND_TEXT, Kind.COMMAND
    """`number` is that of the object of the command, `word` says of which kind."""
    KEY_COMMAND = (
        53, f"{_COMMAND_FIELDS} context", f"{_COMMAND_TEXT}[; {{context}}]", Kind.COMMAND,
    )  # fmt: skip
    """A command on a key, whose entry and mailbox have no records of their own."""
    COMMAND_LOST = 51, "slot reason", "the command in slot {slot} is lost: {reason}"
    PAGE_FAULT = (
        52, "qpn fault what address bytes status us",
        "QP {qpn:#x}: page fault {fault:#x}, {what}, {address:#x}[+{bytes:#x}], {status} after "
        "{us} us",
    )  # fmt: skip
    """It is over; `address` is the index of an entry, or of memory that the peer names."""

    kind: Kind
    template: str
    fields: Mapping[str, Form]
    object: str
    """The field that names the object which the fact is about; empty for none."""
    _head: Struct

    def __new__(cls, number: int, fields: str, template: str, kind: Kind = Kind.NOTE) -> Fact:
        fact = object.__new__(cls)
        fact._value_ = number
        fact.fields = {name: _FORMS.get(name, _NUMBER) for name in fields.split()}
        fact.template, fact.kind = template, kind
        first, form = next(iter(fact.fields.items()))
        fact.object = first if form.noun else ""
        forms = fact.fields.values()
        fact._head = Struct("<" + "".join("I" if form.text else "Q" for form in forms))
        return fact

    def pack(self, values: Mapping[str, Value]) -> bytes:
        """Return the data of a record; a field without a value is 0 or empty."""
        head: list[int] = []
        texts: list[bytes] = []
        for name, form in self.fields.items():
            value = values.get(name, 0)
            if form.text:
                texts.append(str(value or "").encode())
                value = len(texts[-1])
            head.append(int(value))
        return self._head.pack(*head) + b"".join(texts)

    def unpack(self, data: bytes) -> Values:
        """Return the values in the data of a record; raises `ValueError` if it is damaged."""
        at = self._head.size
        if len(data) < at:
            raise ValueError(f"{len(data)} bytes of at least {at}")
        values: Values = {}
        for (name, form), value in zip(
            self.fields.items(), self._head.unpack_from(data), strict=True
        ):
            values[name] = data[at : at + value].decode(errors="replace") if form.text else value
            at += value if form.text else 0
        if at != len(data):
            raise ValueError(f"{len(data)} bytes in place of {at}")
        return values

    def text(self, values: Values) -> str:
        """Return a fact with these values in words."""
        shown = {name: form.shown(values[name]) for name, form in self.fields.items()}
        return "".join(
            part.format(**shown)
            for part, names in parts(self.template)
            if not names or any(values[name] for name in names)
        )


class Told(NamedTuple):
    """A fact with the values of its fields."""

    fact: Fact
    values: Values

    @property
    def text(self) -> str:
        """The fact in words."""
        return self.fact.text(self.values)


MARKS = (Fact.MARK, Fact.GUEST_MARK)
TELLING = frozenset(fact.kind for fact in Fact)
"""The kinds of records that are facts; all others are transfers and accesses."""


@cache
def parts(template: str) -> Sequence[tuple[str, Sequence[str]]]:
    """Return the parts of a template, each with the fields on which it depends."""
    parts = template.replace("]", "[").split("[")
    fields = [[name for _, name, _, _ in Formatter().parse(part) if name] for part in parts]
    return [
        (part, names if place % 2 else ())
        for place, (part, names) in enumerate(zip(parts, fields, strict=True))
    ]
