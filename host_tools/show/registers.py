"""The items of BAR0's registers, decoded by the tables of the function's model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bluebridge.device.layout.fields import Access, Register, RegisterBlock
from bluebridge.device.layout.ioat import registers as ioat_registers
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.commands import name_of
from bluebridge.device.layout.ntb.models import BY_NAME
from bluebridge.host_tools.show.item import Item, Kind, Row

_LINE = 64
_OPCODE = 0xFFF


def blocks_of(model: str) -> Sequence[RegisterBlock]:
    """Return the register tables of a function: `hca`, `ioat`, or the name of a bridge's model."""
    if model == "hca":
        return (bar0.HCR,)
    return ioat_registers.BLOCKS if model == "ioat" else BY_NAME[model].blocks


def lines_of(row: Row) -> Mapping[int, bytes]:
    """Return the bytes of registers by offset, from a row of the device server."""
    return {int(offset): bytes.fromhex(line) for offset, line in row["lines"].items()}


def value_at(
    lines: Mapping[int, bytes], block: RegisterBlock, register: Register, index: int = 0
) -> int:
    """Return the value of a register; registers that are in no line are zero."""
    offset = block.base + index * block.stride + register.offset
    start = next((at for at in (offset, offset & -_LINE, block.base) if at in lines), None)
    if start is None:
        return 0
    at = offset - start
    return int.from_bytes(lines[start][at : at + register.width // 8], block.order)


def registers(row: Row) -> Sequence[Item]:
    """Return the registers that can be read; of repeated ones only those changed since reset."""
    lines = lines_of(row)
    found = [
        _item(row["function"], block, register, index, value)
        for block in blocks_of(row["model"])
        for register, index, value in _values(lines, block)
    ]
    return [*found, _error_buffer(row, lines)] if row["model"] == "hca" else found


def _values(
    lines: Mapping[int, bytes], block: RegisterBlock
) -> Iterator[tuple[Register, int, int]]:
    for index in range(block.count):
        for register in block.registers:
            if register.access is Access.WO:
                continue
            value = value_at(lines, block, register, index)
            if block.count == 1 or value != register.reset:
                yield register, index, value


def _item(function: str, block: RegisterBlock, register: Register, index: int, value: int) -> Item:
    place = f"[{index}]" if block.count > 1 else ""
    name = f"{block.name}{place}.{register.name}"
    fields = register.decode(value) if register.fields or register.values else ""
    meaning = fields.removeprefix(register.name).strip()
    if block is bar0.HCR and register.name == "control":
        meaning = f"{meaning} {name_of(value & _OPCODE)}" if value else meaning
    return {
        "function": function,
        "offset": block.base + index * block.stride + register.offset,
        "register": name,
        "value": f"{value:#0{2 + register.width // 4}x}",
        "fields": meaning,
        "meaning": register.doc,
    }


def _error_buffer(row: Row, lines: Mapping[int, bytes]) -> Item:
    buffer = lines[bar0.CATAS_OFFSET]
    code = bar0.CATAS.get(buffer, "code")
    text = bar0.CATAS.get_raw(buffer, "text").rstrip(b"\0").decode("ascii", "replace")
    return {
        "function": row["function"],
        "offset": bar0.CATAS_OFFSET,
        "register": "CATAS",
        "value": f"{code:#010x}",
        "fields": f"internal error: {text}" if code else "healthy",
        "meaning": bar0.CATAS.doc,
    }


REGS = Kind(
    "regs",
    "registers",
    "an offset in BAR0",
    registers,
    ("offset",),
    ("offset", "register", "value", "fields", "meaning"),
    frozenset(("offset",)),
    offsets=True,
)
