"""The register reference: `python -m bluebridge.device.layout.reference`; `make docs` has it."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache

from bluebridge.device import layout
from bluebridge.device.layout.fields import Field, Register, RegisterBlock, Struct

_INTRODUCTION = """# Registers, descriptors and packets

Generated from the tables in `device/layout` with `python -m bluebridge.device.layout.reference`;
the device, the guest driver and the log's decoder read the same tables. Offsets are bytes from the
start of the block or structure, bits count from 0 at the least significant end of the word after
conversion from its byte order (big-endian unless stated). A source names the Linux function or
structure to check against: `core/` is drivers/net/ethernet/mellanox/mlx4, `ib/` is
drivers/infiniband/hw/mlx4, `inc/` is include/linux/mlx4; in tables of mlx5, `core/` is
mellanox/mlx5/core, `ib/` is infiniband/hw/mlx5.
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


def pages() -> dict[str, str]:
    """Return the pages of the reference as Markdown, by subject, such as `mlx4-wqe` and `ntb`."""
    found: dict[str, list[str]] = {}
    for short, doc, own in tables():
        lines = found.setdefault(_subject(short), [])
        lines += [f"## {short}", "", doc, ""]
        for table in own:
            lines += list(_block(table) if isinstance(table, RegisterBlock) else _struct(table))
    return {subject: "\n".join(lines) for subject, lines in found.items()}


def tables() -> Iterator[tuple[str, str, list[RegisterBlock | Struct]]]:
    """Yield the modules that have tables: name, docstring, tables."""
    for name in _modules():
        module = importlib.import_module(name)
        own = [each for each in vars(module).values() if isinstance(each, RegisterBlock | Struct)]
        if own:
            short = name.removeprefix("bluebridge.device.layout.")
            yield short, (module.__doc__ or "").strip(), own


@cache
def subjects() -> dict[int, str]:
    """Return the subject of each table, by the table's identity."""
    return {id(table): _subject(short) for short, _, own in tables() for table in own}


def _subject(module: str) -> str:
    """Return the subject of a module: adapters have one for each, others one for each room."""
    adapter = module.startswith(("mlx4.", "mlx5."))
    return module.replace(".", "-") if adapter else module.partition(".")[0]


def contents() -> str:
    """Return the page that lists the pages of the reference and what is on each."""
    lines = [_INTRODUCTION, "| page | what is on it |", "|---|---|"]
    for subject, text in pages().items():
        names = re.findall(r"^### ([^:\n]+)", text, re.MULTILINE)
        lines.append(f"| [{subject}](registers-{subject}.md) | {', '.join(names)} |")
    return "\n".join(lines) + "\n"


def reference() -> str:
    """Return all pages of the register reference in one text."""
    return "\n".join([_INTRODUCTION, *pages().values()]).rstrip() + "\n"


if __name__ == "__main__":
    print(reference(), end="")
