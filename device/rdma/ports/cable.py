"""The cable in a port, as its memory describes it to drivers."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.qsfp import QSFP_BASE_SUM, QSFP_EEPROM, QSFP_EXTENDED_SUM, QSFP_PLUS

CR4_40G: Final = 1 << 3
COPPER: Final = 0xA0


def _text(text: str, width: int) -> bytes:
    return text.encode("ascii").ljust(width)


def _memory() -> bytes:
    memory = QSFP_EEPROM.pack(
        identifier=QSFP_PLUS, revision=7, flat=1, no_interrupt=1, upper_identifier=QSFP_PLUS,
        connector=0x23, ethernet=CR4_40G, encoding=5, bit_rate=103, copper_length=1,
        technology=COPPER, vendor=_text("bluebridge", 16), part_number=_text("BB-QSFP-CU1M", 16),
        part_revision=_text("A", 2), attenuation_2500=3, attenuation_5000=5,
        serial_number=_text("BB000001", 16), date=_text("250101", 8),
    )  # fmt: skip
    for name, covered in (("base_sum", QSFP_BASE_SUM), ("extended_sum", QSFP_EXTENDED_SUM)):
        QSFP_EEPROM.set(memory, name, sum(memory[position] for position in covered) & 0xFF)
    return bytes(memory)


EEPROM: Final = _memory()
"""All 256 bytes of the memory."""
