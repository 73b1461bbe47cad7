"""I/OAT descriptors: a linked ring of 64-byte entries, and the completion word."""

from __future__ import annotations

from enum import IntEnum

from bluebridge.device.layout.fields import Struct, bits, u32, u64

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
    [
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
    ],
    doc="One copy.",
    source="drivers/dma/ioat/hw.h, struct ioat_dma_descriptor",
    order="little",
)
COMPLETION = Struct(
    "DMA_COMPLETION",
    8,
    [
        bits("state", 0, 8, 2, 0, "0 more to do, 1 idle, 3 halted"),
        bits("descriptor", 0, 8, 63, 6, "address of the last descriptor done, over 64"),
    ],
    doc="Written to the channel's completion address.",
    source="drivers/dma/ioat/dma.c, ioat_get_current_completion",
    order="little",
)
