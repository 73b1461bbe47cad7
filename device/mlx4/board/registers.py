"""Registers of BAR0 for tools: the chip's id, the running firmware, semaphores, the flash."""

from __future__ import annotations

from struct import pack
from typing import Final

from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.flash import (
    CHIP_OFFSET,
    FLASH,
    RUNNING_OFFSET,
    SEMAPHORES,
    SEMAPHORES_OFFSET,
    TOOLS_CONTROL_OFFSET,
)
from bluebridge.device.mlx4.board.flash import Flash
from bluebridge.device.mlx4.board.image import chip_of, image_of
from bluebridge.device.mlx4.settings.config import FIRMWARE, HcaConfig

_WORD: Final = 4
_SEMAPHORES_END: Final = SEMAPHORES_OFFSET + _WORD * SEMAPHORES


class BoardRegisters:
    """The board's registers; a semaphore is taken by whoever reads it while it is 0."""

    def __init__(self, config: HcaConfig) -> None:
        major, minor, subminor = FIRMWARE
        self._words = {
            CHIP_OFFSET: pack(">I", chip_of(config)),
            TOOLS_CONTROL_OFFSET: pack(">B3x", Status.BAD_OP),
            RUNNING_OFFSET: pack(">HH", major, 0),
            RUNNING_OFFSET + _WORD: pack(">HH", minor, subminor),
        }
        self._flash = Flash(image_of(config))
        self._taken: set[int] = set()

    def reset(self) -> None:
        """Free all semaphores and stop what the flash does."""
        self._taken.clear()
        self._flash.reset()

    def read(self, offset: int, length: int) -> bytes | None:
        """Return bytes of a register, which the read may change; None where there is none."""
        if SEMAPHORES_OFFSET <= offset < _SEMAPHORES_END:
            return _part(self._take(offset // _WORD).to_bytes(_WORD, "big"), offset, length)
        if FLASH.base <= offset <= FLASH.base + FLASH.size - length:
            return self._flash.read(offset - FLASH.base, length)
        word = self._words.get(offset & -_WORD)
        return None if word is None else _part(word, offset, length)

    def _take(self, number: int) -> int:
        taken = number in self._taken
        self._taken.add(number)
        return taken

    def write(self, offset: int, data: bytes) -> None:
        """Free a semaphore, or write to the flash's registers; all else keeps its value."""
        if SEMAPHORES_OFFSET <= offset < _SEMAPHORES_END:
            if any(data):
                self._taken.add(offset // _WORD)
            else:
                self._taken.discard(offset // _WORD)
        elif FLASH.base <= offset <= FLASH.base + FLASH.size - len(data):
            self._flash.write(offset - FLASH.base, data)


def _part(word: bytes, offset: int, length: int) -> bytes:
    """Return `length` bytes of a word from `offset` on, and zeros behind its end."""
    return word[offset % _WORD :].ljust(length, b"\0")[:length]
