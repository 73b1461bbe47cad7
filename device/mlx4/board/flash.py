"""The flash behind its gateway: a serial flash of 2 MiB, which can be read and not written."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.flash import (
    FLASH,
    FLASH_COMMAND,
    GATEWAY_DATA,
    GATEWAY_DATA_BYTES,
    SpiOpcode,
)

FLASH_BYTES: Final = 2 << 20
ID: Final = bytes.fromhex("ef4015")
"""The answer of a Winbond W25Q16BV: maker, type, log2 of the size in bytes."""
PROTECTED: Final = 0x9C
"""The first status byte: all blocks are protected, and so is this byte."""
_ADDRESS: Final = 4
_ERASED: Final = b"\xff"


class Flash:
    """The gateway's registers, and the flash with `image` at its beginning.

    Commands that write or erase are taken and change nothing, as in a flash that is protected.
    """

    def __init__(self, image: bytes) -> None:
        self._image = image
        self._registers = bytearray(FLASH.size)
        self._opcode = 0
        self._next = 0

    def reset(self) -> None:
        """Set the registers to zero."""
        self._registers[:] = bytes(FLASH.size)

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the registers; the offset counts from the gateway's beginning."""
        return bytes(self._registers[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        """Store bytes of registers; a command with `busy` is carried out at once."""
        self._registers[offset : offset + len(data)] = data
        command = self._registers[:_ADDRESS]
        if offset < _ADDRESS and FLASH_COMMAND.get(command, "busy"):
            self._execute(command)
            FLASH_COMMAND.set(self._registers, "busy", 0)

    def _execute(self, command: bytearray) -> None:
        get = FLASH_COMMAND.get
        if get(command, "has_opcode"):
            self._opcode, self._next = get(command, "opcode"), 0
        if get(command, "has_address"):
            self._next = int.from_bytes(self._registers[_ADDRESS : 2 * _ADDRESS], "big")
        if not (get(command, "has_data") and get(command, "read")):
            return
        count = min(1 << get(command, "log_bytes"), GATEWAY_DATA_BYTES)
        found = self._answer(count) if get(command, "bank") == 0 else _ERASED * count
        self._registers[GATEWAY_DATA : GATEWAY_DATA + count] = found
        self._next += count

    def _answer(self, count: int) -> bytes:
        """Return the next bytes that the flash says to its present command."""
        match self._opcode:
            case SpiOpcode.READ | SpiOpcode.READ_FAST:
                at = self._next % FLASH_BYTES
                return self._image[at : at + count].ljust(count, _ERASED)
            case SpiOpcode.READ_ID:
                return ID.ljust(count, b"\0")[:count]
            case SpiOpcode.READ_STATUS:
                return bytes((PROTECTED,)) * count
            case SpiOpcode.READ_STATUS2:
                return bytes(count)
        return _ERASED * count
