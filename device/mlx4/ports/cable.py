"""The cable of an Ethernet port, as `ethtool -m` reads it: one metre of copper, QSFP+ to QSFP+.

Linux `mlx4/port.c: mlx4_get_module_info`. Its memory is flat: other pages show page 0 again.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.cable import (
    CABLE_I2C_ADDRESS,
    CABLE_INFO,
    MAX_CABLE_PAGE,
    MAX_CABLE_READ,
    QSFP_BASE_SUM,
    QSFP_EEPROM,
    QSFP_EXTENDED_SUM,
    QSFP_PLUS,
    CableStatus,
)

CR4_40G: Final = 1 << 3
COPPER: Final = 0xA0


class CableError(Exception):
    """A cable request is answered with a status instead of bytes."""

    def __init__(self, status: CableStatus) -> None:
        super().__init__(status.name)
        self.status = status


def _text(text: str, width: int) -> bytes:
    return text.encode("ascii").ljust(width)


def _memory() -> bytes:
    """Return the whole EEPROM, with its check sums."""
    memory = QSFP_EEPROM.pack(
        identifier=QSFP_PLUS,
        revision=7,
        flat=1,
        no_interrupt=1,
        upper_identifier=QSFP_PLUS,
        connector=0x23,
        ethernet=CR4_40G,
        encoding=5,
        bit_rate=103,
        copper_length=1,
        technology=COPPER,
        vendor=_text("bluebridge", 16),
        part_number=_text("BB-QSFP-CU1M", 16),
        part_revision=_text("A", 2),
        attenuation_2500=3,
        attenuation_5000=5,
        serial_number=_text("BB000001", 16),
        date=_text("250101", 8),
    )
    for name, covered in (("base_sum", QSFP_BASE_SUM), ("extended_sum", QSFP_EXTENDED_SUM)):
        QSFP_EEPROM.set(memory, name, sum(memory[position] for position in covered) & 0xFF)
    return bytes(memory)


EEPROM: Final = _memory()


def read_cable(request: bytes, *, present: bool) -> bytes:
    """Answer a CABLE_INFO with the bytes it asks for; raises `CableError`.

    `present` says whether a cable is plugged in.
    """
    get = CABLE_INFO.get
    address, size = get(request, "address"), get(request, "size")
    if not present:
        raise CableError(CableStatus.NOT_CONNECTED)
    if get(request, "i2c_address") != CABLE_I2C_ADDRESS:
        raise CableError(CableStatus.BAD_I2C_ADDRESS)
    if get(request, "page") > MAX_CABLE_PAGE:
        raise CableError(CableStatus.BAD_PAGE)
    if not 0 < size <= MAX_CABLE_READ or address + size > len(EEPROM):
        raise CableError(CableStatus.BAD_ADDRESS)
    answer = bytearray(request[: CABLE_INFO.size])
    CABLE_INFO.set(answer, "data", EEPROM[address : address + size].ljust(MAX_CABLE_READ, b"\0"))
    return bytes(answer)
