"""Entries of the rings of the Ethernet device: empty buffers for frames, lengths of frames."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.fields import Struct, u64

DROPPED: Final = 0
"""Length that stands for a frame which did not fit into its buffer; the buffer stays empty."""
_SOURCE = "NTRDMA v0.1 ntrdma_eth.c"

FRAME_BUFFER = Struct(
    "NTRDMA_FRAME_BUFFER",
    16,
    u64("address", 0, "on the receiver's bus"),
    u64("length", 8, "bytes that fit"),
    doc="An empty buffer, which the receiver of frames copies to the sender.",
    source=_SOURCE,
    order="little",
)
FRAME_COMPLETION = Struct(
    "NTRDMA_FRAME_COMPLETION",
    8,
    u64("length", 0, "of the frame in the buffer at the same place of the ring; 0 = dropped"),
    doc="A buffer is used, which the sender of frames copies to the receiver.",
    source=_SOURCE,
    order="little",
)
