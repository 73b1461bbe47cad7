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
    One that `varies` differs between two runs of the same program.
    """

    text: bool = False
    noun: str = ""
    words: tuple[str, ...] = ()
    varies: bool = False

    def shown(self, value: Value) -> Value:
        """Return a value as a template prints it."""
        if isinstance(value, int) and value < len(self.words):
            return self.words[value]
        return value


INT = Form()
TEXT = Form(text=True)
MICROSECONDS = Form(varies=True)
ON = Form(words=("off", "on"))
UP = Form(words=("down", "up"))
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
            for part, names in _parts(self.template)
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


@cache
def _parts(template: str) -> Sequence[tuple[str, Sequence[str]]]:
    """Return the parts of a template, each with the fields on which it depends."""
    parts = template.replace("]", "[").split("[")
    fields = [[name for _, name, _, _ in Formatter().parse(part) if name] for part in parts]
    return [
        (part, names if place % 2 else ())
        for place, (part, names) in enumerate(zip(parts, fields, strict=True))
    ]
