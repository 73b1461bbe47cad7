"""The memory of a QSFP cable (SFF-8636), which drivers show with `ethtool -m`."""

from __future__ import annotations

from bluebridge.device.layout.fields import Struct, bits, raw, u8

QSFP_PLUS = 0x0D
QSFP_BASE_SUM, QSFP_EXTENDED_SUM = range(128, 191), range(192, 223)
"""Ranges of bytes of QSFP_EEPROM that are followed by their check sum."""

QSFP_EEPROM = Struct(
    "QSFP_EEPROM",
    256,
    u8("identifier", 0, "0x0D QSFP+"),
    u8("revision", 1, "7: SFF-8636 2.5 to 2.7"),
    bits("flat", 2, 1, 2, doc="page 0 is the only one"),
    bits("no_interrupt", 2, 1, 1),
    u8("upper_identifier", 128, "as byte 0"),
    u8("connector", 130, "0x23: not separable"),
    u8("ethernet", 131, "bit 3: 40GBASE-CR4"),
    u8("encoding", 139, "5: 64B/66B"),
    u8("bit_rate", 140, "100 Mbit/s"),
    u8("copper_length", 146, "metres"),
    u8("technology", 147, "0xA0: copper, not equalized"),
    raw("vendor", 148, 16, "text, ends with spaces like all texts"),
    raw("part_number", 168, 16),
    raw("part_revision", 184, 2),
    u8("attenuation_2500", 186, "dB at 2.5 GHz"),
    u8("attenuation_5000", 187, "dB at 5 GHz"),
    u8("base_sum", 191, "low byte of the sum of bytes 128 to 190"),
    raw("serial_number", 196, 16),
    raw("date", 212, 8, "year, month, day, lot: two characters each"),
    u8("extended_sum", 223, "low byte of the sum of bytes 192 to 222"),
    doc="memory of a QSFP+ cable: bytes 0 to 127, then page 0",
    source="SFF-8636",
)
