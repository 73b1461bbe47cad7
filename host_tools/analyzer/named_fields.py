"""The fields of what crossed the bus by name, with values: of registers and of structures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.fields import RegisterBlock, Struct
from bluebridge.host_tools.analyzer.devices.registry import model_of

_ACCESSES = (Kind.MMIO_READ, Kind.MMIO_WRITE)
_LEAST_HEX = 10


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
    for table, base in model.parts(event):
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
    for name, where in register.fields.items():
        high, low = (where, where) if isinstance(where, int) else where
        part = value >> low & (1 << high - low + 1) - 1
        bits = f"bits {high}:{low}" if high != low else f"bit {high}"
        yield NamedField(block, f"{register.name}.{name}", 0, _number(part), bits)


def _number(value: int) -> str:
    return str(value) if value < _LEAST_HEX else f"{value:#x}"
