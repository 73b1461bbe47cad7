"""The register reference: `python -m bluebridge.device.layout.reference`; `make docs` has it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from bluebridge.device import layout
from bluebridge.device.layout.fields import Field, Register, RegisterBlock, Struct

_INTRODUCTION = """# Registers, descriptors and packets

Generated from the tables in `device/layout` with `python -m bluebridge.device.layout.reference`;
the device, the guest driver and the log's decoder read the same tables. Offsets are bytes from the
start of the block or structure, bits count from 0 at the least significant end of the word after
conversion from its byte order (big-endian unless stated). A source names the Linux function or
structure to check against: `core/` is drivers/net/ethernet/mellanox/mlx4, `ib/` is
drivers/infiniband/hw/mlx4, `inc/` is include/linux/mlx4.
"""


def _modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(layout.__path__, "bluebridge.device.layout."):
        if not module.name.endswith((".fields", ".reference")):
            yield module.name


def _bit_range(item: Field) -> str:
    if item.raw:
        return "bytes"
    return str(item.high) if item.high == item.low else f"{item.high}:{item.low}"


def _register_bits(register: Register) -> str:
    words = []
    for name, where in register.fields.items():
        place = str(where) if isinstance(where, int) else f"{where[0]}:{where[1]}"
        words.append(f"{name} [{place}]")
    return ", ".join(words)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _block(block: RegisterBlock) -> Iterator[str]:
    repeat = f", repeated {block.count} times every {block.stride:#x}" if block.stride else ""
    yield f"### {block.name}: {block.doc}"
    yield ""
    place = f"BAR{block.bar}, from offset {block.base:#x}{repeat}, {block.order}-endian."
    yield f"{place} Source: {block.source}"
    yield ""
    yield "| offset | bits | access | reset | name | meaning | fields |"
    yield "|---|---|---|---|---|---|---|"
    for item in block.registers:
        yield (
            f"| {item.offset:#x} | {item.width} | {item.access} | {item.reset:#x} | {item.name} "
            f"| {_cell(item.doc)} | {_register_bits(item)} |"
        )
    yield ""


def _struct(table: Struct) -> Iterator[str]:
    yield f"### {table.name}: {table.size} bytes"
    yield ""
    order = "" if table.order == "big" else f" {table.order}-endian."
    yield f"{table.doc}{order} Source: {table.source}".strip()
    yield ""
    yield "| offset | word | bits | name | meaning |"
    yield "|---|---|---|---|---|"
    for item in table.fields:
        place = f"{item.offset:#x} | {item.width} | {_bit_range(item)}"
        yield f"| {place} | {item.name} | {_cell(item.doc)} |"
    yield ""


def reference() -> str:
    """Return the whole page of the register reference as Markdown."""
    lines = [_INTRODUCTION]
    for name in _modules():
        module = importlib.import_module(name)
        own = [
            value for value in vars(module).values() if isinstance(value, RegisterBlock | Struct)
        ]
        if not own:
            continue
        lines += [
            f"## {name.removeprefix('bluebridge.device.layout.')}",
            "",
            (module.__doc__ or "").strip(),
            "",
        ]
        for table in own:
            lines += list(_block(table) if isinstance(table, RegisterBlock) else _struct(table))
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(reference(), end="")
