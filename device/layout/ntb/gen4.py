"""Intel NTB of the fourth generation (8086:347e revision 0x10, Sapphire Rapids), little-endian.

Everything is in BAR0; BAR2 and BAR4 are the windows into the peer's memory. Offsets and meanings
are those that drivers/ntb/hw/intel/ntb_hw_gen4.[ch] and the functions it shares with gen3 and gen1
rely on.
"""

from __future__ import annotations

from bluebridge.device.layout.fields import Access, Register, bar0_block
from bluebridge.device.layout.ntb.uses import RegisterUse, Use, Uses

BAR0_SIZE = 0x10000
MSIX_TABLE = 0x4000
MSIX_PENDING = 0x5000
WINDOW_BARS = (2, 4)
DOORBELLS = 32
SPADS = 16
LINK_BIT = 32
"""Bit of int_status, and index of int_vector, for link events."""
VECTORS = DOORBELLS + 1

UPSTREAM = 0x0200
"""Value of ppd1 on the upstream side of a back-to-back pair (gen4: NTB_TOPO_B2B_USD)."""
DOWNSTREAM = 0x4200
LINK_UP = 0x2084
"""Value of link_status while the link is up: data link active, 8 lanes, 16 GT/s."""
LINK_DISABLE = 1 << 4
TRAIN = 1 << 3
LINK_CHANGED = 1 << 8

_RO, _RW, _WO, _W1C = Access.RO, Access.RW, Access.WO, Access.W1C
_SOURCE = "drivers/ntb/hw/intel/ntb_hw_gen4.h"

CONTROL = bar0_block(
    "NTB4",
    0,
    0x80,
    (
        Register("control", 0x00, 32, _RW, "snoop attributes, 0x154 when enabled"),
        Register("window0_base", 0x10, 64, _RW, "own address that the peer's BAR2 shows"),
        Register("window0_limit", 0x18, 64, _RW, "own BAR2 plus the window's open length"),
        Register("window1_base", 0x20, 64, _RW, "own address that the peer's BAR4 shows"),
        Register("window1_limit", 0x28, 64, _RW, "own BAR4 plus the window's open length"),
        Register(
            "int_status",
            0x40,
            64,
            _W1C,
            "what waits: doorbells of the peer, and the link",
            fields={"doorbells": (31, 0), "link": 32},
        ),
        Register(
            "int_disable",
            0x48,
            64,
            _RW,
            "1 = no interrupt for this bit; it stays pending and fires when unmasked",
            fields={"doorbells": (31, 0), "link": 32},
        ),
        Register("base0_index", 0x74, 16, _RW, "log2 of the window, Ice Lake only"),
        Register("base1_index", 0x76, 16, _RW, "log2 of the window, Ice Lake only"),
    ),
    doc="control, windows, interrupts",
    source=_SOURCE,
)
INT_VECTORS = bar0_block(
    "INTVEC",
    0x50,
    0x21,
    (Register("vector", 0, 8, _RW, "MSI-X vector of this bit of int_status"),),
    doc="which vector tells of which bit",
    source=f"{_SOURCE}, GEN4_INTVEC_OFFSET",
    stride=1,
    count=VECTORS,
)
SPAD = bar0_block(
    "SPAD",
    0x80,
    4 * SPADS,
    (Register("spad", 0, 32, _RW, "scratchpad, which the peer writes as PEER_SPAD"),),
    doc="own scratchpads",
    source=f"{_SOURCE}, GEN4_SPAD_OFFSET",
    stride=4,
    count=SPADS,
)
DOORBELL = bar0_block(
    "DOORBELL",
    0x100,
    4 * DOORBELLS,
    (Register("ring", 0, 32, _WO, "bit 0 sets this bit of the peer's int_status"),),
    doc="doorbells of the peer",
    source="drivers/ntb/hw/intel/ntb_hw_gen3.c, intel_ntb3_peer_db_set",
    stride=4,
    count=DOORBELLS,
)
LTR = bar0_block(
    "LTR",
    0x30EC,
    12,
    (
        Register("ltr_select", 0, 8, _RW, "0 = active, 1 = idle"),
        Register("ltr_active", 4, 32, _RW, "latency tolerance while active"),
        Register("ltr_idle", 8, 32, _RW, "latency tolerance while idle"),
    ),
    doc="latency tolerance reporting",
    source=f"{_SOURCE}, GEN4_LTR_SWSEL_OFFSET",
)
PEER_SPAD = bar0_block(
    "PEER_SPAD",
    0x8080,
    4 * SPADS,
    (Register("spad", 0, 32, _RW, "the peer's scratchpad; zero without a peer"),),
    doc="the peer's scratchpads",
    source=f"{_SOURCE}, GEN4_EM_SPAD_OFFSET",
    stride=4,
    count=SPADS,
)
LINK = bar0_block(
    "LINK",
    0xB050,
    0x474,
    (
        Register("link_control", 0x00, 16, _RW, "the link's switch", LINK_DISABLE, {"disable": 4}),
        Register(
            "link_status",
            0x02,
            16,
            _RO,
            "the link as it is; 0x2084 = up",
            fields={"active": 13, "width": (9, 4), "speed": (3, 0)},
        ),
        Register("slot_status", 0x0A, 16, _W1C, "what happened", 0, {"link_changed": 8}),
        Register("ppd0", 0x84, 32, _RW, "port definition", 0, {"train": 3}),
        Register("ppd1", 0x470, 32, _RO, "straps", 0, {"connection": (10, 8), "downstream": 14}),
    ),
    doc="the PCI Express link between the bridges",
    source=f"{_SOURCE}, GEN4_LINK_CTRL_OFFSET to GEN4_PPD1_OFFSET",
)

BLOCKS = (CONTROL, INT_VECTORS, SPAD, DOORBELL, LTR, PEER_SPAD, LINK)
USES = Uses({
    ("SPAD", "spad"): RegisterUse(Use.OWN_SCRATCHPAD),
    ("PEER_SPAD", "spad"): RegisterUse(Use.PEER_SCRATCHPAD),
    ("DOORBELL", "ring"): RegisterUse(Use.RING, bits=1, bit_each=True),
    ("NTB4", "int_status"): RegisterUse(Use.PENDING),
    ("NTB4", "int_disable"): RegisterUse(Use.MASK),
    ("INTVEC", "vector"): RegisterUse(Use.VECTOR),
    ("NTB4", "window0_limit"): RegisterUse(Use.WINDOW_LIMIT, WINDOW_BARS[0]),
    ("NTB4", "window1_limit"): RegisterUse(Use.WINDOW_LIMIT, WINDOW_BARS[1]),
})  # fmt: skip
