"""Describes accesses of configuration space: capability, register, the bits that are set."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import starmap

from bluebridge.device.layout import pci
from bluebridge.device.layout.fields import Field, Struct

_MOST = 16
"""Greatest length of an access whose registers are named; longer ones copy the whole space."""


@dataclass(frozen=True, slots=True)
class ConfigRegister:
    """A register of configuration space: offset, length in bytes, name and bit fields."""

    offset: int
    width: int
    name: str
    fields: tuple[Field, ...] = ()

    @property
    def end(self) -> int:
        """The offset behind the last byte of the register."""
        return self.offset + self.width

    def text(self, data: bytes) -> str:
        """Return the name of the register and its value, or its fields that are not zero."""
        value = int.from_bytes(data, "little")
        if not self.fields:
            return f"{self.name}={value:#x}"
        values = ((each.name, (value >> each.low) & each.mask) for each in self.fields)
        given = [
            f"{name}={part:#x}" if part > 9 else f"{name}={part}" for name, part in values if part
        ]
        return " ".join([self.name, *given])


def _registers(base: int, title: str, struct: Struct) -> list[ConfigRegister]:
    """Return the registers of a header or capability that begins at `base`."""
    found = []
    for offset, width in sorted({(item.offset, item.width) for item in struct}):
        items = [item for item in struct if (item.offset, item.width) == (offset, width)]
        whole = [item for item in items if item.low == 0 and item.high == 8 * width - 1]
        parts = tuple(item for item in items if item not in whole)
        name = whole[0].name.replace("_", " ") if whole else pci.REGISTER_NAMES[title, offset]
        # The header's registers are called as `lspci` and the specification do.
        name = f"{title} {name}" if title else _header_name(name)
        found.append(ConfigRegister(base + offset, width, name, parts))
    return found


def _header_name(name: str) -> str:
    return name.upper() if name.startswith(("bar", "rom")) else name.capitalize()


REGISTERS: tuple[ConfigRegister, ...] = (
    *_registers(0, "", pci.HEADER),
    *(
        register
        for offset, (title, struct) in pci.CAPABILITIES.items()
        for register in _registers(offset, title, struct)
    ),
    *(
        ConfigRegister(start + offset, width, f"{title} {name}")
        for start, (title, _) in pci.CAPABILITIES.items()
        for (of, offset), (width, name) in pci.PORT_REGISTERS.items()
        if of == title
    ),
)
"""All registers of a function's configuration space, by offset within header and capabilities."""


def config_text(
    offset: int, data: bytes, length: int, more: Iterable[tuple[int, int, str]] = ()
) -> str:
    """Describe an access of `length` bytes at `offset`; `data` may be shorter.

    `more` are registers that only this model has: offset, bytes, name.
    """
    if length > _MOST:
        return "whole config space" if not offset else f"config {offset:#x}"
    parts = [
        _part(register, offset, data)
        for register in (*REGISTERS, *starmap(ConfigRegister, more))
        if register.offset < offset + length and register.end > offset
    ]
    where = "extended config space" if offset >= 0x100 else "config"
    return ", ".join(parts) or f"{where} {offset:#x}"


def _part(register: ConfigRegister, offset: int, data: bytes) -> str:
    begin = register.offset - offset
    if begin < 0 or begin + register.width > len(data):
        return f"part of {register.name}"
    return register.text(data[begin : begin + register.width])
