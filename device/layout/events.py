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
from typing import Any, NamedTuple

from bluebridge.device.layout.buslog import Kind

Value = int | str
Values = dict[str, Any]
"""The values of a fact's fields by name: each is a number or a text, as its form says."""


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


INT = Form()
TEXT = Form(text=True)
MICROSECONDS = Form(varies=True)
ON = Form(words=("off", "on"))
UP = Form(words=("down", "up"))
QP, CQ, EQ = Form(noun="QP"), Form(noun="CQ"), Form(noun="EQ")
PORT, CHANNEL = Form(noun="port"), Form(noun="channel")


class Fact(Enum):
    """Facts, each with its number, the kind of its record, a template of its text, and its fields.

    A part of a template in brackets is left out when all of its fields are 0 or empty.
    """

    COMMAND = (
        1, Kind.COMMAND,
        "{name} op_mod={op_mod} in_mod={in_mod:#x} in={in_param:#x} {status} {us} us[: {reason}]",
        {"name": TEXT, "op_mod": INT, "in_mod": INT, "in_param": INT, "status": TEXT,
         "us": MICROSECONDS, "reason": TEXT},
    )  # fmt: skip

    MARK = 2, Kind.NOTE, "mark: {text}", {"text": TEXT}
    """A mark of the whole pair."""
    GUEST_MARK = 3, Kind.NOTE, "mark: {text}", {"text": TEXT}
    """A mark of the guest of the device."""
    LOG_STOPPED = 4, Kind.NOTE, "the log was stopped: {why}", {"why": TEXT}
    EVENTS_LOST = (
        5, Kind.NOTE, "the disk is too slow: {count} events are missing so far", {"count": INT},
    )  # fmt: skip
    CONTROL = 6, Kind.CONTROL, "{line}[: refused: {error}]", {"line": TEXT, "error": TEXT}

    # A function, its bus and its ports.
    BUS_MASTER = 7, Kind.NOTE, "bus master {on}", {"on": ON}
    RESET = 8, Kind.RESET, "{cause} reset", {"cause": TEXT}
    INTERRUPT_LOST = (
        9, Kind.NOTE, "interrupt {vector} {why}",
        {"vector": INT, "why": Form(words=("without bus master is lost", "is not set up"))},
    )  # fmt: skip
    MESSAGE_LOST = (
        10, Kind.NOTE, "an interrupt message to {address:#x} without bus master is lost",
        {"address": INT},
    )  # fmt: skip
    PRESENCE = 11, Kind.NOTE, "presence: {presence}", {"presence": TEXT}
    MASTER_ABORT = (
        12, Kind.NOTE, "master abort: {why} at {address:#x}", {"why": TEXT, "address": INT},
    )  # fmt: skip
    LINK = (
        13, Kind.LINK, "port {port}: cable {cable}, link {link}",
        {"port": PORT, "cable": Form(words=("out", "in")), "link": UP},
    )  # fmt: skip
    INTERNAL_ERROR = 14, Kind.NOTE, "internal error: {reason}", {"reason": TEXT}

    # Bridges and DMA engines.
    BRIDGE_LINK = 15, Kind.NOTE, "link {link}", {"link": UP}
    WINDOW_OPENED = (
        16, Kind.NOTE, "window {window} shows {length:#x} bytes at {address:#x}",
        {"window": INT, "length": INT, "address": INT},
    )  # fmt: skip
    WINDOW_CLOSED = 17, Kind.NOTE, "window {window} is closed", {"window": INT}
    WINDOW_EXCEEDED = (
        18, Kind.NOTE,
        "window {window}: the peer's access at {offset:#x} is beyond what it shows ({count})",
        {"window": INT, "offset": INT, "count": INT},
    )  # fmt: skip
    BRIDGE_HANGS = 19, Kind.NOTE, "erratum {erratum}: the bridge hangs", {"erratum": TEXT}
    BRIDGE_MIGHT_HANG = (
        20, Kind.NOTE, "erratum {erratum}: would have hung ({count})",
        {"erratum": TEXT, "count": INT},
    )  # fmt: skip
    CHANNEL_HALTED = (
        21, Kind.NOTE, "channel {channel} halted: {error} at {address:#x}",
        {"channel": CHANNEL, "error": TEXT, "address": INT},
    )  # fmt: skip

    # Faults that somebody asked for.
    NAMED_FAULT = (
        22, Kind.FAULT, "fault {fault} {name}:[ {what}][ QP {qpn:#x}]",
        {"fault": INT, "name": TEXT, "what": TEXT, "qpn": QP},
    )  # fmt: skip
    RULE = (
        23, Kind.FAULT,
        "[fault {fault} {name}: ]rule {rule} {verb} ({direction}): {message}[ {operation}]"
        "[ to {to}][ count={count}][ qpn={qpn:#x}][ > qpn={dqpn:#x} psn={psn:#x}] bytes={bytes}"
        "[ part at {part}]",
        {"fault": INT, "name": TEXT, "rule": INT, "action": TEXT, "verb": TEXT, "direction": TEXT,
         "message": TEXT, "operation": TEXT, "to": TEXT, "count": INT, "qpn": INT, "dqpn": INT,
         "psn": INT, "bytes": INT, "part": INT},
    )  # fmt: skip

    # Work requests and messages of queue pairs.
    WORK_REFUSED = (
        24, Kind.NOTE, "QP {qpn:#x} WQE {index}: {reason}",
        {"qpn": QP, "index": INT, "reason": TEXT},
    )  # fmt: skip
    RECEIVE_FAILED = (
        25, Kind.NOTE, "QP {qpn:#x} receive: {reason}", {"qpn": QP, "reason": TEXT},
    )  # fmt: skip
    NO_ANSWER = (
        26, Kind.NOTE, "QP {qpn:#x}: no answer for PSN {psn:#x}, retry {retry} of {most}",
        {"qpn": QP, "psn": INT, "retry": INT, "most": INT},
    )  # fmt: skip
    SEQUENCE_ERROR = (
        27, Kind.NOTE,
        "QP {qpn:#x}: sequence error, sending again from PSN {psn:#x}, retry {retry} of {most}",
        {"qpn": QP, "psn": INT, "retry": INT, "most": INT},
    )  # fmt: skip
    RETRIES_USED_UP = (
        28, Kind.NOTE, "QP {qpn:#x}: {most} retries for PSN {psn:#x} are used up",
        {"qpn": QP, "psn": INT, "most": INT},
    )  # fmt: skip
    NOT_READY = (
        29, Kind.NOTE, "QP {qpn:#x}: RNR NAK, retry {retry} in {delay:g} ms{offered}",
        {"qpn": QP, "retry": INT, "delay": Form(per=1000),
         "offered": Form(words=("", ", offered every millisecond"))},
    )  # fmt: skip
    NOT_READY_USED_UP = (
        30, Kind.NOTE, "QP {qpn:#x}: {most} RNR retries are used up", {"qpn": QP, "most": INT},
    )  # fmt: skip
    REFUSAL = (
        31, Kind.NOTE, "QP {qpn:#x}: syndrome {syndrome:#x} for PSN {psn:#x}",
        {"qpn": QP, "syndrome": INT, "psn": INT},
    )  # fmt: skip
    RATE = (
        32, Kind.NOTE,
        "QP {qpn:#x}: rate {rate:.1f} Mb/s, target {target:.1f} Mb/s, alpha {alpha:.3f} ({cause})",
        {"qpn": QP, "rate": Form(per=1_000_000), "target": Form(per=1_000_000),
         "alpha": Form(per=1000), "cause": TEXT},
    )  # fmt: skip
    """Rates are in bits per second, `alpha` in thousandths."""
    NAK = (
        33, Kind.NOTE, "QP {qpn:#x}: NAK {syndrome:#x} for[ {operation}] PSN {psn:#x}: {reason}",
        {"qpn": QP, "syndrome": INT, "operation": TEXT, "psn": INT, "reason": TEXT},
    )  # fmt: skip
    DROPPED = (
        34, Kind.NOTE, "QP {qpn:#x}: dropped[ {operation}]: {reason}",
        {"qpn": QP, "operation": TEXT, "reason": TEXT},
    )  # fmt: skip
    REPEATED_READ_REFUSED = (
        35, Kind.NOTE, "QP {qpn:#x}: a read that came again is not permitted any more",
        {"qpn": QP},
    )  # fmt: skip
    DATAGRAM_DROPPED = (
        36, Kind.NOTE, "QP {qpn:#x}: datagram dropped, {reason}", {"qpn": QP, "reason": TEXT},
    )  # fmt: skip
    FOREIGN_MESSAGE = (
        37, Kind.NOTE, "QP {qpn:#x}: dropped a message of {mac}, {reason} ({count} so far)",
        {"qpn": QP, "mac": TEXT, "reason": TEXT, "count": INT},
    )  # fmt: skip
    PACKET_LOST = (
        38, Kind.NOTE,
        "port {port}: dropped a packet, too much waits for it ({count} so far)",
        {"port": PORT, "count": INT},
    )  # fmt: skip
    SCATTERED = (
        39, Kind.NOTE,
        "QP {qpn:#x}: {pieces} pieces of memory; the next transfer stands for the last {rest}, "
        "{bytes} bytes of which only {first} are at its address",
        {"qpn": QP, "pieces": INT, "rest": INT, "bytes": INT, "first": INT},
    )  # fmt: skip

    # Queues.
    SCATTERED_RING = (
        40, Kind.NOTE,
        "queue {queue:#x}: {pieces} pieces of memory; the next transfer is the last {rest}, "
        "{bytes} bytes of which only {first} are at its address",
        {"queue": Form(noun="queue"), "pieces": INT, "rest": INT, "bytes": INT, "first": INT},
    )  # fmt: skip
    SEND_QUEUE_LOST = (
        41, Kind.NOTE, "QP {qpn:#x}: send queue: {reason}", {"qpn": QP, "reason": TEXT},
    )  # fmt: skip
    CQ_LOST = 42, Kind.NOTE, "CQ {cqn:#x}: {reason}", {"cqn": CQ, "reason": TEXT}
    NO_CQ = (
        43, Kind.NOTE, "QP {qpn:#x}: its CQ {cqn:#x} does not exist", {"qpn": QP, "cqn": CQ},
    )  # fmt: skip
    NO_EQ = (
        44, Kind.NOTE, "event {event:#x} has no EQ[: EQ {eqn:#x} does not exist]",
        {"event": INT, "eqn": EQ},
    )  # fmt: skip
    EQ_FULL = 45, Kind.NOTE, "EQ {eqn:#x} is not served, events are lost", {"eqn": EQ}
    EQ_LOST = 46, Kind.NOTE, "EQ {eqn:#x}: {reason}", {"eqn": EQ, "reason": TEXT}
    BLUEFLAME_KNOWN = (
        47, Kind.NOTE, "BlueFlame page {page}: entry {entry} was fetched before",
        {"page": INT, "entry": INT, "qpn": QP},
    )  # fmt: skip
    BLUEFLAME_REFUSED = (
        48, Kind.NOTE, "BlueFlame page {page}: {reason}: fetched instead",
        {"page": INT, "reason": TEXT, "qpn": QP},
    )  # fmt: skip
    BLUEFLAME_LOST = (
        49, Kind.NOTE, "BlueFlame page {page}: {reason} ({count} so far)",
        {"page": INT, "reason": TEXT, "qpn": QP, "count": INT},
    )  # fmt: skip

    kind: Kind
    template: str
    fields: Mapping[str, Form]
    object: str
    """The field that names the object which the fact is about; empty for none."""
    _head: Struct

    def __new__(cls, number: int, kind: Kind, template: str, fields: Mapping[str, Form]) -> Fact:
        fact = object.__new__(cls)
        fact._value_ = number
        fact.kind, fact.template, fact.fields = kind, template, fields
        fact.object = next((name for name, form in fields.items() if form.noun), "")
        fact._head = Struct("<" + "".join("I" if form.text else "Q" for form in fields.values()))
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
