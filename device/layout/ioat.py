"""The DMA engine of the I/OAT family: its registers in BAR0, descriptors and completion word."""

from __future__ import annotations

from enum import IntEnum, IntFlag

from bluebridge.device.layout.fields import Access, Register, Struct, bar0_block, bits, u32, u64

DESCRIPTOR_SIZE = 64


class Operation(IntEnum):
    """Operations of descriptors that the engine offers; others belong to absent capabilities."""

    COPY = 0x00
    XOR = 0x87
    XOR_VALIDATE = 0x88
    PQ = 0x89
    PQ_VALIDATE = 0x8A


DESCRIPTOR = Struct(
    "DMA_DESCRIPTOR",
    DESCRIPTOR_SIZE,
    u32("size", 0, "bytes; 1 in null descriptors"),
    bits("interrupt", 4, 4, 0),
    bits("source_no_snoop", 4, 4, 1),
    bits("destination_no_snoop", 4, 4, 2),
    bits("completion_write", 4, 4, 3),
    bits("fence", 4, 4, 4),
    bits("null", 4, 4, 5, doc="moves nothing"),
    bits("operation", 4, 4, 31, 24, "0 = copy"),
    u64("source", 8),
    u64("destination", 16),
    u64("next", 24, "address of the next descriptor"),
    doc="One copy.",
    source="drivers/dma/ioat/hw.h, struct ioat_dma_descriptor",
    order="little",
)
COMPLETION = Struct(
    "DMA_COMPLETION",
    8,
    bits("state", 0, 8, 2, 0, "0 more to do, 1 idle, 3 halted"),
    bits("descriptor", 0, 8, 63, 6, "address of the last descriptor done, over 64"),
    doc="Written to the channel's completion address.",
    source="drivers/dma/ioat/dma.c, ioat_get_current_completion",
    order="little",
)


VENDOR = 0x8086
DEVICES = {0x34: 0x0B00, 0x32: 0x0E20}
"""PCI device IDs by the value of the version register."""
PCI_IDS = tuple((VENDOR, device) for device in DEVICES.values())
"""Vendor and device ID of every version."""
CLASS_DMA = 0x088000
LOG_SUFFIX = "dma"
"""The part after `GUEST.` in the name of a DMA engine in the bus log."""

BAR0_SIZE = 0x4000
MSIX_TABLE = 0x2000
MSIX_PENDING = 0x3000
CHANNEL_BASE = 0x80
CHANNEL_SIZE = 0x80
MOST_CHANNELS = 4
TRANSFER_CAPACITY = 20
"""log2 of the bytes one descriptor may move; the driver splits longer copies."""
MASTER_INTERRUPT = 1
REARM = 1
"""Bit of channel_control that permits the next interrupt."""


class ChannelCommand(IntFlag):
    """Bits of channel_command."""

    SUSPEND = 0x04
    ABORT = 0x08
    RESUME = 0x10
    RESET = 0x20


class State(IntEnum):
    """Channel states: low bits of channel_status and of the completion word."""

    ACTIVE = 0
    IDLE = 1
    SUSPENDED = 2
    HALTED = 3


class ChannelError(IntFlag):
    """Bits of channel_error."""

    NEXT_ADDRESS = 0x4
    READ_DATA = 0x100
    WRITE_DATA = 0x200
    CONTROL = 0x400
    LENGTH = 0x800
    COMPLETION_ADDRESS = 0x1000


_RO, _RW, _WO, _W1C = Access.RO, Access.RW, Access.WO, Access.W1C
_SOURCE = "drivers/dma/ioat/registers.h"

GLOBAL = bar0_block(
    "IOAT",
    0,
    0x80,
    (
        Register("channel_count", 0x00, 8, _RO, "channels"),
        Register("transfer_capacity", 0x01, 8, _RO, "log2 of the longest copy"),
        Register(
            "interrupt_control", 0x03, 8, _RW, "interrupts", 0, {"master": 0, "per_channel": 3}
        ),
        Register("attention", 0x04, 32, _RO, "channels that interrupt; for INTx and MSI"),
        Register("version", 0x08, 8, _RO, "0x34 = 3.4"),
        Register("interrupt_delay", 0x0C, 16, _RW, "coalescing; bit 15 would offer it"),
        Register("capabilities", 0x10, 32, _RO, "0: copies only, no XOR and no PQ"),
        Register("dca_offset", 0x14, 16, _RO, "0: no direct cache access"),
        Register("prefetch_limit", 0x4C, 8, _RW, "with descriptor prefetch only"),
    ),
    doc="what the engine has",
    source=_SOURCE,
)
CHANNEL = bar0_block(
    "CHANNEL",
    CHANNEL_BASE,
    CHANNEL_SIZE,
    (
        Register(
            "channel_control",
            0x00,
            16,
            _RW,
            "error handling; bit 0 re-arms the interrupt",
            0,
            {"rearm": 0, "error_interrupt": 2, "any_error_abort": 3, "error_completion": 4},
        ),
        Register(
            "channel_command",
            0x04,
            8,
            _WO,
            "reads 0",
            0,
            {"suspend": 2, "abort": 3, "resume": 4, "reset": 5},
        ),
        Register("dma_count", 0x06, 16, _RW, "doorbell: descriptors to have done, modulo 65536"),
        Register(
            "channel_status",
            0x08,
            64,
            _RO,
            "the last descriptor done, and the state",
            State.HALTED,
            {"descriptor": (63, 6), "state": (2, 0)},
        ),
        Register("chain_address_low", 0x10, 32, _RW, "first descriptor; the count starts anew"),
        Register("chain_address_high", 0x14, 32, _RW, "its upper half"),
        Register("completion_low", 0x18, 32, _RW, "where the completion word is written"),
        Register("completion_high", 0x1C, 32, _RW, "its upper half"),
        Register("channel_error", 0x28, 32, _W1C, "why the channel halted"),
        Register("channel_error_mask", 0x2C, 32, _RW, "storage"),
        Register("dca_control", 0x30, 32, _RW, "storage"),
    ),
    doc="one channel",
    source=_SOURCE,
    stride=CHANNEL_SIZE,
    count=MOST_CHANNELS,
)

BLOCKS = (GLOBAL, CHANNEL)
