"""The registers of a PCI function, with the access rules that its register tables declare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bluebridge.device.layout.fields import Access, RegisterBlock

LINE: Final = 64
"""Bytes of one line that `RegisterFile.lines` returns."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One register of a file: `index` is its instance of a repeated block.

    `offset` and `width` are in bytes.
    """

    block: str
    name: str
    index: int
    offset: int
    width: int
    access: Access
    reset: int


class RegisterFile:
    """Little-endian registers of one BAR; bytes between them read zero and ignore writes.

    Accesses may have any width and cover several registers, or a part of one.
    """

    def __init__(self, blocks: Sequence[RegisterBlock], size: int) -> None:
        self.data = bytearray(size)
        self.stuck: set[int] = set()
        """Offsets of registers that keep their value, whoever writes them."""
        self._slots: dict[int, Slot] = {}
        self._names: dict[tuple[str, str], tuple[int, int, int]] = {}
        self._presets: list[Slot] = []
        for block in blocks:
            self._add(block)
        self._lines = sorted({offset & -LINE for offset in self._slots})
        self.reset()

    def _add(self, block: RegisterBlock) -> None:
        for register in block.registers:
            width = register.width // 8
            start = block.base + register.offset
            self._names[block.name, register.name] = start, width, block.stride
            for index in range(block.count):
                offset = start + index * block.stride
                slot = Slot(
                    block.name, register.name, index, offset, width, register.access, register.reset
                )
                if slot.reset:
                    self._presets.append(slot)
                self._slots.update(dict.fromkeys(range(offset, offset + width), slot))

    def reset(self) -> None:
        """Set all registers to their values after power-on."""
        self.data[:] = bytes(len(self.data))
        for slot in self._presets:
            self._store(slot, slot.reset)

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes at `offset`; bytes behind the end of the file are zeros."""
        return bytes(self.data[offset : offset + length]).ljust(length, b"\0")

    def write(self, offset: int, data: bytes) -> Iterator[tuple[Slot, int]]:
        """Store `data` by the registers' access rules; yield each register written and its value.

        The value is the one written. Bytes of a register that the access does not cover keep their
        value, or count as zeros for write-1-to-clear and write-only registers. A register is stored
        before it is yielded.
        """
        position, end = offset, offset + len(data)
        while position < end:
            slot = self._slots.get(position)
            if slot is None:
                position += 1
                continue
            stop = min(end, slot.offset + slot.width)
            part = data[position - offset : stop - offset]
            yield slot, self._written(slot, position - slot.offset, part)
            position = stop

    def _written(self, slot: Slot, skip: int, part: bytes) -> int:
        if len(part) != slot.width:
            order = slot.access in (Access.W1C, Access.WO)
            word = bytearray(slot.width) if order else self._word(slot)
            word[skip : skip + len(part)] = part
            part = bytes(word)
        value = int.from_bytes(part, "little")
        if slot.access is Access.RW:
            self._store(slot, value)
        elif slot.access is Access.W1C:
            self._store(slot, int.from_bytes(self._word(slot), "little") & ~value)
        return value

    def _word(self, slot: Slot) -> bytearray:
        return self.data[slot.offset : slot.offset + slot.width]

    def _store(self, slot: Slot, value: int) -> None:
        if slot.offset not in self.stuck:
            self.data[slot.offset : slot.offset + slot.width] = value.to_bytes(slot.width, "little")

    def lines(self) -> dict[int, bytes]:
        """Return the lines of 64 bytes that hold registers and are not all zero, by offset."""
        data = self.data
        lines = ((at, bytes(data[at : at + LINE])) for at in self._lines)
        return {at: line for at, line in lines if line.strip(b"\0")}

    def get(self, block: str, name: str, index: int = 0) -> int:
        """Return the value of a register, named by its block and its name in the block."""
        start, width, stride = self._names[block, name]
        start += index * stride
        return int.from_bytes(self.data[start : start + width], "little")

    def set(self, block: str, name: str, value: int, index: int = 0) -> None:
        """Set a register, whatever its access rule."""
        start, width, stride = self._names[block, name]
        start += index * stride
        if start not in self.stuck:
            self.data[start : start + width] = value.to_bytes(width, "little")
