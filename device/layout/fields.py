"""Tables of registers and of structures in memory; each of them is declared only here.

A `Struct` describes a descriptor, context or packet as named bit ranges of big-endian words; a
`RegisterBlock` describes registers of a BAR. Device and guest driver pack and unpack with them, the
log's decoder prints with them, and the register reference is generated from them. This package uses
the standard library only, since guests have a copy of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

ByteOrder = Literal["big", "little"]


class Access(StrEnum):
    """The ways in which software may access a register."""

    RO = "ro"
    RW = "rw"
    WO = "wo"
    W1C = "w1c"


Value = int | bytes
_LONGEST_RAW = 16
"""Most bytes of a raw field that is shown among words."""


@dataclass(frozen=True, slots=True)
class Field:
    """One value inside a structure.

    `offset` is the byte offset of the word that holds it, `width` that word's size in bytes,
    `high`/`low` the bit slice inside the word after conversion from its byte order. `raw` fields
    are byte strings (addresses, GIDs) and have no bit slice.
    """

    name: str
    offset: int
    width: int
    high: int
    low: int
    doc: str
    raw: bool = False

    @property
    def mask(self) -> int:
        """The field's mask, already shifted down to bit 0."""
        return (1 << (self.high - self.low + 1)) - 1


def bits(
    name: str, offset: int, width: int, high: int, low: int | None = None, doc: str = ""
) -> Field:
    """Make a field of bits `high..low` of the `width`-byte word at `offset`.

    Without `low` it is one bit.
    """
    return Field(name, offset, width, high, high if low is None else low, doc)


def word(name: str, offset: int, high: int, low: int | None = None, doc: str = "") -> Field:
    """Make a field of bits `high..low` of the 32-bit word at `offset`, as tables of mlx5 have it.

    Without `low` it is one bit.
    """
    return bits(name, offset, 4, high, low, doc)


def u8(name: str, offset: int, doc: str = "") -> Field:
    """Make a field that is a whole byte."""
    return Field(name, offset, 1, 7, 0, doc)


def u16(name: str, offset: int, doc: str = "") -> Field:
    """Make a field that is a whole 16-bit word."""
    return Field(name, offset, 2, 15, 0, doc)


def u24(name: str, offset: int, doc: str = "") -> Field:
    """Make a field that is a whole 24-bit word."""
    return Field(name, offset, 3, 23, 0, doc)


def u32(name: str, offset: int, doc: str = "") -> Field:
    """Make a field that is a whole 32-bit word."""
    return Field(name, offset, 4, 31, 0, doc)


def u40(name: str, offset: int, doc: str = "") -> Field:
    """Make a field that is a whole 40-bit word (an MTT address: 8 high bits, then 32 low ones)."""
    return Field(name, offset, 5, 39, 0, doc)


def u64(name: str, offset: int, doc: str = "") -> Field:
    """Make a field that is a whole 64-bit word."""
    return Field(name, offset, 8, 63, 0, doc)


def raw(name: str, offset: int, length: int, doc: str = "") -> Field:
    """Make a field of `length` bytes that is read and written as bytes."""
    return Field(name, offset, length, length * 8 - 1, 0, doc, raw=True)


class Struct:
    """A structure of `size` bytes made of fields.

    `pack` starts from zeros and refuses unknown names and values too wide; `unpack` and `get`
    read bytes at least `size` long and raise `ValueError` on shorter ones.
    """

    def __init__(
        self,
        name: str,
        size: int,
        *fields: Field,
        doc: str = "",
        source: str = "",
        order: ByteOrder = "big",
    ) -> None:
        self.name = name
        self.size = size
        self.fields = fields
        self.doc = doc
        self.source = source
        self.order: ByteOrder = order
        self._by_name = {item.name: item for item in fields}
        if len(self._by_name) != len(fields):
            raise ValueError(f"{name}: a field name appears twice")
        for item in fields:
            if item.offset + item.width > size or item.high >= item.width * 8:
                raise ValueError(f"{name}.{item.name} lies outside of the structure")

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def field(self, name: str) -> Field:
        """Return the field called `name`; raises `KeyError` when there is none."""
        return self._by_name[name]

    def get(self, data: bytes | bytearray | memoryview, name: str, base: int = 0) -> int:
        """Return the integer value of a field of the structure that starts at `base` in `data`."""
        item = self._by_name[name]
        start = base + item.offset
        word = bytes(data[start : start + item.width])
        if len(word) != item.width:
            raise ValueError(f"{self.name}.{name}: {len(data) - base} bytes are too few")
        return (int.from_bytes(word, self.order) >> item.low) & item.mask

    def get_raw(self, data: bytes | bytearray | memoryview, name: str, base: int = 0) -> bytes:
        """Return the bytes of a raw field of the structure that starts at `base` in `data`."""
        item = self._by_name[name]
        return bytes(data[base + item.offset : base + item.offset + item.width])

    def set(self, data: bytearray | memoryview, name: str, value: Value, base: int = 0) -> None:
        """Store the value of a field into `data`; other bits of its word keep their values."""
        item = self._by_name[name]
        start = base + item.offset
        if item.raw:
            if not isinstance(value, bytes | bytearray) or len(value) != item.width:
                raise ValueError(f"{self.name}.{name}: {item.width} bytes expected")
            data[start : start + item.width] = value
            return
        if not isinstance(value, int) or value < 0 or value > item.mask:
            raise ValueError(f"{self.name}.{name}: {value!r} does not fit")
        word = int.from_bytes(data[start : start + item.width], self.order)
        word = word & ~(item.mask << item.low) | value << item.low
        data[start : start + item.width] = word.to_bytes(item.width, self.order)

    def take(self, target: bytearray, source: bytes, *names: str) -> None:
        """Store into `target` the values that fields have in `source`."""
        for name in names:
            raw = self._by_name[name].raw
            self.set(target, name, self.get_raw(source, name) if raw else self.get(source, name))

    def take_if_set(self, target: bytearray, source: bytes, *names: str) -> None:
        """Store into `target` the values of those fields that are not zero in `source`."""
        self.take(target, source, *(name for name in names if self.get(source, name)))

    def words(self, data: bytes, base: int = 0) -> str:
        """Return the fields that are not zero as words, of those that `data` has whole."""
        found = []
        for item in self.fields:
            start = base + item.offset
            word = data[start : start + item.width]
            value = int.from_bytes(word, self.order)
            if not value or len(word) < item.width:
                continue
            if item.raw:
                if item.width <= _LONGEST_RAW:
                    found.append(f"{item.name}={word.hex()}")
            elif value := value >> item.low & item.mask:
                found.append(f"{item.name}={value:#x}")
        return " ".join(found)

    def pack(self, values: Mapping[str, Value] | None = None, /, **more: Value) -> bytearray:
        """Return a structure with the given fields set and zeros elsewhere."""
        data = bytearray(self.size)
        for name, value in {**(values or {}), **more}.items():
            self.set(data, name, value)
        return data

    def unpack(self, data: bytes | bytearray | memoryview, base: int = 0) -> dict[str, Value]:
        """Return the values of all fields by name; those of raw fields are bytes."""
        if len(data) - base < self.size:
            raise ValueError(f"{self.name}: {len(data) - base} bytes, {self.size} expected")
        return {
            item.name: self.get_raw(data, item.name, base)
            if item.raw
            else self.get(data, item.name, base)
            for item in self.fields
        }

    def describe(self, data: bytes | bytearray | memoryview, *, zeros: bool = False) -> str:
        """Return one line `name=value …` of the non-zero fields, for the log's decoder."""
        words = []
        for item in self.fields:
            if item.offset + item.width > len(data):
                continue
            if item.raw:
                text = self.get_raw(data, item.name)
                if zeros or any(text):
                    words.append(f"{item.name}={text.hex()}")
                continue
            value = self.get(data, item.name)
            if zeros or value:
                words.append(f"{item.name}={value:#x}" if value > 9 else f"{item.name}={value}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Register:
    """A register: its `offset` in bytes from its block's base, `width` in bits, reset value.

    `doc` is its meaning.
    """

    name: str
    offset: int
    width: int
    access: Access
    doc: str
    reset: int = 0
    fields: Mapping[str, int | tuple[int, int]] = field(default_factory=dict)
    values: Mapping[int, str] = field(default_factory=dict)

    def parts(self, value: int) -> Iterator[tuple[str, int, int, int]]:
        """Yield name, highest bit, lowest bit and value of each field of a register value."""
        for name, where in self.fields.items():
            high, low = (where, where) if isinstance(where, int) else where
            yield name, high, low, (value >> low) & ((1 << (high - low + 1)) - 1)

    def decode(self, value: int) -> str:
        """Return the line `name field=value …` for a register value, given as an integer."""
        if not self.fields:
            return f"{self.name}={self.values.get(value, f'{value:#x}')}"
        words = [
            f"{name}={part:#x}" if part > 9 else f"{name}={part}"
            for name, _, _, part in self.parts(value)
            if part
        ]
        return f"{self.name} {' '.join(words)}".strip()


@dataclass(frozen=True)
class RegisterBlock:
    """Registers that belong together: `base` is their offset in BAR `bar`.

    `stride` repeats the block (UAR pages); 0 means the block exists once.
    """

    name: str
    bar: int
    base: int
    size: int
    registers: tuple[Register, ...]
    doc: str = ""
    source: str = ""
    order: ByteOrder = "big"
    stride: int = 0
    count: int = 1

    def find(self, offset: int) -> tuple[int, Register] | None:
        """Return the instance index and the register at `offset`, counted from the BAR's start.

        Returns None where there is no register.
        """
        relative = offset - self.base
        index = 0
        if self.stride:
            index, relative = divmod(relative, self.stride)
        if not 0 <= index < self.count:
            return None
        for register in self.registers:
            if register.offset <= relative < register.offset + register.width // 8:
                return index, register
        return None

    def at(self, name: str, index: int = 0) -> int:
        """Return the offset of a register from the BAR's start."""
        for register in self.registers:
            if register.name == name:
                return self.base + index * self.stride + register.offset
        raise KeyError(f"{self.name} has no register {name}")


def bar0_block(
    name: str,
    base: int,
    size: int,
    registers: tuple[Register, ...],
    doc: str,
    source: str,
    stride: int = 0,
    count: int = 1,
) -> RegisterBlock:
    """Return a block of little-endian registers in BAR0."""
    return RegisterBlock(name, 0, base, size, registers, doc, source, "little", stride, count)
