"""An event as a line of a table in the style of a PCIe analyzer, as JSON, and field by field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bluebridge.device.buslog.reader import Event
from bluebridge.device.buslog.wire import packet_of
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.fields import RegisterBlock, Struct
from bluebridge.host_tools.analyzer import packets
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.devices.registry import model_of

Describe = Callable[[Event], str]

_FORMS: dict[Kind, tuple[str, str, str]] = {
    Kind.MMIO_READ: ("mmio", "host->dev", "MRd"),
    Kind.MMIO_WRITE: ("mmio", "host->dev", "MWr"),
    Kind.DMA_READ: ("dma", "dev->host", "MRd"),
    Kind.DMA_WRITE: ("dma", "dev->host", "MWr"),
    Kind.IRQ: ("irq", "dev->host", "MSI-X"),
    Kind.COMMAND: ("command", "-", "command"),
    Kind.CONFIG_READ: ("config", "host->dev", "CfgRd"),
    Kind.CONFIG_WRITE: ("config", "host->dev", "CfgWr"),
    Kind.RESET: ("reset", "-", "reset"),
    Kind.NOTE: ("note", "-", "note"),
    Kind.WIRE: ("wire", "dev->wire", "message"),
    Kind.FAULT: ("fault", "-", "fault"),
    Kind.LINK: ("link", "-", "link"),
    Kind.CONTROL: ("control", "-", "control"),
    Kind.BLUEFLAME: ("blueflame", "-", "entry"),
}
"""For each kind its word for `--kind`, and direction and type as a PCIe analyzer names them."""
KINDS = {
    group: frozenset(kind for kind, form in _FORMS.items() if form[0] == group)
    for group, _, _ in _FORMS.values()
}

HEADER = (
    f"{'timestamp':>13} {'dev':3} {'direction':9} {'type':7} {'address':>18} {'length':>7} "
    f"{'data':32} decoded"
)
NARROW_HEADER = f"{'timestamp':>13} {'dev':3} {'direction':9} {'type':7} {'address':>12} decoded"
"""Column heads for a terminal that has no room for the data."""
_SHOWN = 16

_ACCESSES = (Kind.MMIO_READ, Kind.MMIO_WRITE)
_LEAST_HEX = 10


def _place(event: Event) -> str:
    if event.kind in KINDS["mmio"]:
        return f"BAR{event.bar}+{event.address:#x}"
    if event.kind in KINDS["irq"]:
        return f"vector {event.address}"
    return f"{event.address:#x}" if event.address else ""


def table_line(event: Event, *, decoded: bool = True, words: Describe = decode) -> str:
    """Write an event in the columns of `HEADER`; `words` describes it."""
    _, direction, kind = _FORMS[event.kind]
    text = event.text
    data = "" if text else event.data[:_SHOWN].hex()
    length = "" if text or event.kind == Kind.IRQ else str(event.length)
    tail = text or (words(event) if decoded else "")
    line = (
        f"{event.time:13.6f} {event.device:3} {direction:9} {kind:7} {_place(event):>18} "
        f"{length:>7} {data:32} {tail}"
    )
    return line.rstrip()


def plain_line(event: Event, words: Describe = decode) -> str:
    """Write an event without time, length and data; expressions are searched in this form."""
    _, direction, kind = _FORMS[event.kind]
    return " ".join((event.device, direction, kind, _place(event), words(event)))


def narrow_line(event: Event, *, decoded: bool = True, words: Describe = decode) -> str:
    """Write an event without data, in the columns of `NARROW_HEADER`."""
    _, direction, kind = _FORMS[event.kind]
    tail = event.text or (words(event) if decoded else "")
    line = f"{event.time:13.6f} {event.device:3} {direction:9} {kind:7} {_place(event):>12} {tail}"
    return line.rstrip()


def json_line(event: Event, *, decoded: bool = True, words: Describe = decode) -> str:
    """Write an event as a JSON object: stable field names, numbers as numbers, data in hex."""
    row: dict[str, object] = {
        "event": event.number,
        "t": round(event.time, 9),
        "device": event.device,
        "kind": event.kind.name.lower(),
        "address": event.address,
        "length": event.length,
    }
    if event.kind in KINDS["mmio"]:
        row["bar"] = event.bar
    if event.kind in KINDS["dma"] | KINDS["wire"] | KINDS["blueflame"]:
        row |= {"what": event.what.name.lower(), "obj": event.obj}
    told = event.told
    if told is not None:
        row |= {"fact": told.fact.name.lower(), "text": told.text, "values": told.values}
    else:
        row["data"] = event.data.hex()
        if decoded:
            row["decoded"] = words(event)
    return json.dumps(row)


class NamedField(NamedTuple):
    """A field: its table, its name there, the byte where its word begins, value and meaning."""

    table: Struct | RegisterBlock
    name: str
    offset: int
    value: str
    meaning: str


def named_fields(event: Event) -> Iterator[NamedField]:
    """Yield the fields of an event whose bytes the log has; none where no table knows them."""
    model = model_of(event.device)
    if event.kind in _ACCESSES:
        yield from _of_register(event)
        return
    packet = packet_of(event)
    for table, base in model.parts(event) if packet is None else packets.parts(packet):
        for item in table:
            end = base + item.offset + item.width
            if end > len(event.data):
                continue
            if item.raw:
                value = table.get_raw(event.data, item.name, base).hex(":")
            else:
                value = _number(table.get(event.data, item.name, base))
            yield NamedField(table, item.name, base + item.offset, value, item.doc)


def _of_register(event: Event) -> Iterator[NamedField]:
    found = model_of(event.device).find(event.bar, event.address)
    if found is None or event.length * 8 != found.register.width:
        return
    block, _, register = found
    value = int.from_bytes(event.data, block.order)
    yield NamedField(block, register.name, 0, f"{value:#x}", register.doc)
    for name, high, low, part in register.parts(value):
        bits = f"bits {high}:{low}" if high != low else f"bit {high}"
        yield NamedField(block, f"{register.name}.{name}", 0, _number(part), bits)


def _number(value: int) -> str:
    return str(value) if value < _LEAST_HEX else f"{value:#x}"
