"""Switchtec PSX (11f8:8531): the global address space in BAR0, little-endian.

Two partitions of one switch; each guest is in one, and sees the control blocks of both. BAR2 has
look-up windows of 64 KiB and a direct window behind them, BAR4 is a direct window. Offsets are
those of include/linux/switchtec.h, as drivers/ntb/hw/mscc/ntb_hw_switchtec.c uses them.
"""

from __future__ import annotations

from enum import IntEnum

from bluebridge.device.layout.fields import Access, Register, RegisterBlock, bar0_block
from bluebridge.device.layout.ntb.uses import RegisterUse, Use, Uses

VENDOR = 0x11F8
DEVICE = 0x8531
"""The PCI device ID, which registers repeat with the vendor ID."""

BAR0_SIZE = 4 << 20
MSIX_TABLE = 0x200000
MSIX_PENDING = 0x201000
VECTORS = 4
"""Number of MSI-X vectors.

The driver uses three of them; writes through a window raise all further ones that it asks for.
"""
PARTITIONS = 2
WINDOW_BARS = (2, 4)
LUTS = 16
LUT_SIZE = 64 << 10
DOORBELLS = 60
MESSAGES = 4
EVENT_VECTOR = 0
BAR_VALID = 1
DIRECT_ENABLE = 1 << 4
LUT_ENABLE = 1
CONTROL_START = 0x14000
CONTROL_STRIDE = 0x2000
LINK_STATUS = 0x830000
"""Register value of a port's PCI Express link status in the upper half: 8 lanes, 8 GT/s."""
EVENT_OCCURRED = 1
EVENT_COUNT_SHIFT = 5
MANAGEMENT_ERROR = 0xFF


class LinkMessage(IntEnum):
    """Values that drivers send each other as message 0 (enum switchtec_msg)."""

    UP = 1
    DOWN = 2
    CHECK = 3
    """The sender's view of the link has changed."""
    FORCE_DOWN = 4
    """The sender has started again."""


class Operation(IntEnum):
    """Operations that software requests of a control block."""

    LOCK = 1
    CONFIGURE = 2
    RESET = 3


class BlockStatus(IntEnum):
    """State of a control block, as the partition that reads it sees it."""

    NORMAL = 1
    LOCKED = 2
    LOCKING = 3
    """The partition has asked for the lock while the other partition holds it."""


_RO, _RW, _WO, _W1C = Access.RO, Access.RW, Access.WO, Access.W1C
_SOURCE = "include/linux/switchtec.h"

MANAGEMENT = bar0_block(
    "MRPC",
    0x800,
    0x20,
    (
        Register("command", 0x00, 32, _RW, "management command; all end with an error"),
        Register("status", 0x04, 32, _RO, "0xff = error"),
        Register("result", 0x08, 32, _RO, "what the command returned"),
        Register("dma_enable", 0x0C, 32, _RW, "storage"),
        Register("dma_version", 0x1C, 32, _RO, "0: answers stay in registers"),
    ),
    doc="management",
    source=f"{_SOURCE}, struct mrpc_regs",
)
SYSTEM = bar0_block(
    "SYSTEM",
    0x2000,
    0x20,
    (
        Register("device_id", 0x00, 32, _RO, "the part", DEVICE),
        Register("partition", 0x18, 32, _RO, "the guest's own"),
    ),
    doc="what the switch is",
    source=f"{_SOURCE}, struct sys_info_regs",
)
PARTITION = bar0_block(
    "PARTITION",
    0x4000,
    0x200,
    (
        Register("upstream_port", 0x10, 32, _RO, "none", 0xFF),
        Register("endpoint_port", 0x14, 32, _RO, "port function of the bridge"),
        *(Register(f"port{n}", 0x18 + 4 * n, 32, _RO, "none", 0xFF) for n in range(47)),
        Register("endpoint_vector", 0x100, 16, _RO, "vector of its events", EVENT_VECTOR),
        Register("upstream_vector", 0x102, 16, _RO, "vector of its events", EVENT_VECTOR),
        Register("management_event", 0x13C, 32, _RW, "a command is done", 0, {"occurred": 0}),
    ),
    doc="configuration of a partition",
    source=f"{_SOURCE}, struct part_cfg_regs",
    stride=0x400,
    count=PARTITIONS,
)
INFO = bar0_block(
    "NTB",
    0x10000,
    0x20,
    (
        Register("partition_count", 0x00, 8, _RO, "partitions", PARTITIONS),
        Register("partition_id", 0x01, 8, _RO, "the guest's own"),
        Register("endpoints", 0x04, 64, _RO, "partitions with a bridge", (1 << PARTITIONS) - 1),
        Register("requester_id", 0x0C, 16, _RO, "of this guest's root complex"),
    ),
    doc="what the bridges are",
    source=f"{_SOURCE}, struct ntb_info_regs",
)
CONTROL = bar0_block(
    "CONTROL",
    CONTROL_START,
    0x100,
    (
        Register(
            "status", 0x00, 32, _RO, "1 normal, 2 locked, 3 waiting for it", BlockStatus.NORMAL
        ),
        Register("operation", 0x04, 32, _WO, "1 lock, 2 configure, 3 reset"),
        Register("control", 0x08, 32, _RW, "requester identity protection"),
        Register("bar_setup", 0x0C, 32, _RW, "storage"),
        Register("bar_error", 0x10, 32, _RO, "what was wrong with a window"),
        Register("lut_entries", 0x14, 16, _RO, "look-up windows", LUTS),
        Register("lut_error", 0x18, 32, _RO, "what was wrong with a look-up window"),
        Register("requester_entries", 0x1C, 16, _RO, "size of the requester table", 16),
        Register("requester_error", 0x20, 32, _RO, "what was wrong with the table"),
        *(
            register
            for bar in range(6)
            for register in (
                Register(
                    f"bar{bar}_control",
                    0x40 + 16 * bar,
                    32,
                    _RW,
                    "what the BAR shows",
                    BAR_VALID if bar in WINDOW_BARS else 0,
                    {"valid": 0, "direct": 4, "lut": 5, "lut_size": (13, 8), "lut_last": (22, 14)},
                ),
                Register(
                    f"bar{bar}_size",
                    0x44 + 16 * bar,
                    32,
                    _RW,
                    "bytes of the direct window",
                    0,
                    {"log2": (5, 0), "pages": (31, 12)},
                ),
                Register(
                    f"bar{bar}_translation",
                    0x48 + 16 * bar,
                    64,
                    _RW,
                    "address in the target's memory, and its partition",
                ),
                Register(f"bar{bar}_size_high", 0xA0 + 16 * bar, 32, _RW, "upper half of the size"),
            )
        ),
    ),
    doc="control block of a partition, shared by both guests",
    source=f"{_SOURCE}, struct ntb_ctrl_regs",
    stride=CONTROL_STRIDE,
    count=PARTITIONS,
)

MESSAGING = bar0_block(
    "MESSAGING",
    0x75000,
    0x100,
    (
        Register("outbound_doorbell", 0x00, 64, _WO, "sets bits of the peer's"),
        Register("outbound_mask", 0x08, 64, _RW, "1 = this bit goes out"),
        Register("inbound_doorbell", 0x10, 64, _W1C, "what the peer has rung"),
        Register("inbound_mask", 0x18, 64, _RW, "1 = this bit interrupts"),
        Register("message_map", 0x60, 32, _RW, "by byte: the peer's message | its partition << 2"),
        *(
            register
            for n in range(MESSAGES)
            for register in (
                Register(f"outbound{n}", 0x68 + 8 * n, 32, _WO, "a message to the peer"),
                Register(f"inbound{n}", 0x88 + 8 * n, 32, _RO, "a message of the peer"),
                Register(f"inbound{n}_status", 0x8C + 8 * n, 8, _W1C, "1 = it is new"),
                Register(f"inbound{n}_enable", 0x8D + 8 * n, 8, _RW, "1 = it interrupts"),
                Register(f"inbound{n}_source", 0x8E + 8 * n, 8, _RO, "who sent it"),
            )
        ),
    ),
    doc="doorbells and messages of a partition",
    source=f"{_SOURCE}, struct ntb_dbmsg_regs",
    stride=0x4000,
    count=PARTITIONS,
)
VECTOR0, VECTOR1 = (
    bar0_block(
        f"VECTOR{partition}",
        0x75020 + 0x4000 * partition,
        64,
        (Register("vector", 0, 8, _RW, "MSI-X vector; the last four are of messages"),),
        doc=f"vectors of partition {partition}'s doorbells",
        source=f"{_SOURCE}, idb_vec_map",
        stride=1,
        count=64,
    )
    for partition in range(PARTITIONS)
)
PORT = bar0_block(
    "PORT",
    0x134000,
    0xE00,
    (
        Register("vendor", 0x00, 16, _RO, "ends the list if it is another", VENDOR),
        Register("link_status", 0x74, 32, _RO, "PCI Express link", LINK_STATUS),
        Register(
            "link_event",
            0xD30,
            32,
            _RW,
            "the link has changed",
            0,
            {"occurred": 0, "count": (12, 5)},
        ),
    ),
    doc="a port function",
    source=f"{_SOURCE}, struct pff_csr_regs",
    stride=0x1000,
    count=PARTITIONS,
)

OWN = (MANAGEMENT, SYSTEM, PARTITION, INFO, MESSAGING, VECTOR0, VECTOR1, PORT)

USES = Uses(
    {
        ("MESSAGING", "outbound_doorbell"): RegisterUse(Use.RING, bits=(1 << DOORBELLS) - 1),
        ("MESSAGING", "inbound_doorbell"): RegisterUse(Use.PENDING),
        ("MESSAGING", "inbound_mask"): RegisterUse(Use.MASK),
        **{("MESSAGING", f"outbound{n}"): RegisterUse(Use.SEND, n) for n in range(MESSAGES)},
        **{("MESSAGING", f"inbound{n}"): RegisterUse(Use.INBOX, n) for n in range(MESSAGES)},
        **{
            ("MESSAGING", f"inbound{n}_status"): RegisterUse(Use.INBOX_STATUS, n)
            for n in range(MESSAGES)
        },
        ("VECTOR0", "vector"): RegisterUse(Use.VECTOR),
        ("VECTOR1", "vector"): RegisterUse(Use.VECTOR),
    },
    message_names={each.value: each.name for each in LinkMessage},
    first_message=DOORBELLS,
)


def _tables(partition: int) -> tuple[RegisterBlock, ...]:
    """Return the requester and look-up tables of a partition's control block."""
    base = CONTROL_START + CONTROL_STRIDE * partition
    return (
        bar0_block(
            f"REQUESTER{partition}",
            base + 0x400,
            0x800,
            (Register("entry", 0, 32, _RW, "who may use the windows; storage"),),
            doc="requester table",
            source=f"{_SOURCE}, req_id_table",
            stride=4,
            count=512,
        ),
        bar0_block(
            f"LUT{partition}",
            base + 0x1000,
            0x1000,
            (
                Register(
                    "entry",
                    0,
                    64,
                    _RW,
                    "look-up window",
                    0,
                    {"enable": 0, "partition": (6, 1), "address": (63, 16)},
                ),
            ),
            doc="look-up windows",
            source=f"{_SOURCE}, lut_entry",
            stride=8,
            count=512,
        ),
    )


REQUESTER0, LUT0 = _tables(0)
REQUESTER1, LUT1 = _tables(1)


SHARED = (CONTROL, REQUESTER0, REQUESTER1, LUT0, LUT1)
"""Register blocks of which the switch has one copy for both guests."""
BLOCKS = (*SHARED, *OWN)
