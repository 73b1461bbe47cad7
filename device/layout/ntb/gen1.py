"""Intel NTB of the first generation (8086:0e0d, Ivy Town), little-endian.

Registers are in BAR0; BAR2 and BAR4 are windows onto a bus in the middle, where the registers and
windows of the peer have addresses of their own. Sizes and straps are in config space. Offsets are
those of drivers/ntb/hw/intel/ntb_hw_gen1.h.
"""

from __future__ import annotations

from bluebridge.device.layout.fields import Access, Register, bar0_block
from bluebridge.device.layout.ntb.uses import RegisterUse, Use, Uses

BAR0_SIZE = 0x10000
MSIX_TABLE = 0x4000
MSIX_PENDING = 0x5000
WINDOW_BARS = (2, 4)
REGISTERS_SHOWN = 0x8000
"""Bytes of the registers that the peer sees on the middle bus, from register0_base on."""
DOORBELLS = 15
SPADS = 16
LINK_BIT = 15
VECTORS = 4
DOORBELLS_PER_VECTOR = 5
LINK_UP = 0x2084
LINK_DISABLE = 1 << 1
LOST_DOORBELL = 14
"""The doorbell that b2b_doorbell does not pass on, by an erratum of all parts."""
DOORBELL_ERRATUM = "sdoorbell"
"""Name of the erratum NTB_HWERR_SDOORBELL_LOCKUP (ntb_hw_intel.h).

The bridge locks up when a doorbell register is written while the peer accesses the registers.
"""
CONFIGURATION_ERRATUM = "sb01base"
"""Name of the erratum NTB_HWERR_SB01BASE_LOCKUP.

The bridge locks up when the registers are accessed while stores cross it in both directions.
"""
ERRATA = (DOORBELL_ERRATUM, CONFIGURATION_ERRATUM)

PRIMARY_SIZES = {2: 0xD0, 4: 0xD1}
"""Config bytes with log2 of a window's size as this guest sees it."""
SECONDARY_SIZES = {2: 0xD2, 4: 0xD3}
"""Config bytes with log2 of a window's size as the peer sees it; 0 switches it off."""
PPD = 0xD4
PPD_BACK_TO_BACK = 0x01
PPD_DOWNSTREAM = 0x10
LINK_STATUS = 0x1A2
"""Offset in config space of the word with the link status."""

_RO, _RW, _WO, _W1C = Access.RO, Access.RW, Access.WO, Access.W1C
_SOURCE = "drivers/ntb/hw/intel/ntb_hw_gen1.h"

CONTROL = bar0_block(
    "NTB1",
    0,
    0x80,
    (
        Register("primary2_limit", 0x00, 64, _RW, "end of what goes out of BAR2; 0 = no end"),
        Register("primary4_limit", 0x08, 64, _RW, "end of what goes out of BAR4; 0 = no end"),
        Register("primary2_base", 0x10, 64, _RW, "middle-bus address that BAR2 shows"),
        Register("primary4_base", 0x18, 64, _RW, "middle-bus address that BAR4 shows"),
        Register("secondary2_limit", 0x20, 64, _RW, "middle-bus end of window 2; 0 = no end"),
        Register("secondary4_limit", 0x28, 64, _RW, "middle-bus end of window 4; 0 = no end"),
        Register("secondary2_translation", 0x30, 64, _RW, "own address that window 2 shows"),
        Register("secondary4_translation", 0x38, 64, _RW, "own address that window 4 shows"),
        Register("register0_base", 0x40, 64, _RW, "where the peer sees these registers"),
        Register("secondary2_base", 0x48, 64, _RW, "where the peer sees window 2"),
        Register("secondary4_base", 0x50, 64, _RW, "where the peer sees window 4"),
        Register("control", 0x58, 32, _RW, "switches", 0x3, {"lock": 0, "link_disable": 1}),
        Register(
            "doorbell",
            0x60,
            16,
            _W1C,
            "what the peer has rung; the peer's own writes set bits",
            fields={"doorbells": (14, 0), "link": 15},
        ),
        Register("doorbell_mask", 0x62, 16, _RW, "1 = no interrupt for this bit"),
        Register("secondary_doorbell", 0x64, 16, _WO, "rings the other side; locks up (erratum)"),
        Register("secondary_mask", 0x66, 16, _RW, "storage"),
        Register("memory_miss", 0x70, 16, _RO, "debugfs"),
    ),
    doc="windows, control, doorbells",
    source=_SOURCE,
)
SPAD = bar0_block(
    "SPAD",
    0x80,
    4 * SPADS,
    (Register("spad", 0, 32, _RW, "scratchpad; the peer reaches it on the middle bus"),),
    doc="own scratchpads",
    source=f"{_SOURCE}, XEON_SPAD_OFFSET",
    stride=4,
    count=SPADS,
)
PEER_SPAD = bar0_block(
    "PEER_SPAD",
    0x100,
    4 * SPADS,
    (Register("spad", 0, 32, _RW, "the peer's scratchpad"),),
    doc="the peer's scratchpads, for drivers without the work-around",
    source=f"{_SOURCE}, XEON_B2B_SPAD_OFFSET",
    stride=4,
    count=SPADS,
)
CROSSING = bar0_block(
    "B2B",
    0x140,
    0x10,
    (
        Register("b2b_doorbell", 0x00, 16, _WO, "rings the peer; locks up, and loses bit 14"),
        Register("b2b_translation_low", 0x04, 32, _RW, "storage"),
        Register("b2b_translation_high", 0x08, 32, _RW, "storage"),
    ),
    doc="what reaches the peer without a window",
    source=f"{_SOURCE}, XEON_B2B_DOORBELL_OFFSET",
)
SECONDARY = bar0_block(
    "SECONDARY",
    0x504,
    2,
    (Register("command", 0, 16, _RW, "memory decoding and bus master on the middle bus"),),
    doc="command register of the secondary side",
    source=f"{_SOURCE}, XEON_SPCICMD_OFFSET",
)

BLOCKS = (CONTROL, SPAD, PEER_SPAD, CROSSING, SECONDARY)
USES = Uses(
    {
        ("SPAD", "spad"): RegisterUse(Use.OWN_SCRATCHPAD),
        ("PEER_SPAD", "spad"): RegisterUse(Use.PEER_SCRATCHPAD),
        ("NTB1", "secondary_doorbell"): RegisterUse(Use.RING),
        ("B2B", "b2b_doorbell"): RegisterUse(Use.RING, bits=~(1 << LOST_DOORBELL)),
        ("NTB1", "doorbell"): RegisterUse(Use.PENDING),
        ("NTB1", "doorbell_mask"): RegisterUse(Use.MASK),
        ("NTB1", "register0_base"): RegisterUse(Use.SHOWN_AT),
        **{("NTB1", f"primary{n}_base"): RegisterUse(Use.BAR_BASE, n) for n in WINDOW_BARS},
        **{("NTB1", f"secondary{n}_limit"): RegisterUse(Use.WINDOW_LIMIT, n) for n in WINDOW_BARS},
    },
    doorbells_per_vector=DOORBELLS_PER_VECTOR,
    registers_shown=REGISTERS_SHOWN,
    config=(
        *((at, 1, f"primary BAR{bar} size") for bar, at in PRIMARY_SIZES.items()),
        *((at, 1, f"secondary BAR{bar} size") for bar, at in SECONDARY_SIZES.items()),
        (PPD, 1, "PPD"),
        (LINK_STATUS, 2, "NTB link status"),
    ),
)
