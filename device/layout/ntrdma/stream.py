"""NTRDMA without a bridge: stores into the peer's memory as messages of a TCP stream."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from bluebridge.device.layout.fields import Struct, u32, u64

TAG: Final = 0xE4EE6EB8E653FA98


class MessageKind(IntEnum):
    """The actions that messages ask the receiver for."""

    DATA = 1
    SIGNAL = 2
    IMMEDIATE = 4


MESSAGE = Struct(
    "NTRDMA_MESSAGE",
    32,
    u64("tag", 0, "0xe4ee6eb8e653fa98"),
    u32("kind", 8, "MessageKind"),
    u32("length", 12, "bytes of data behind this header"),
    u64("address", 16, "where they go, or what is signalled"),
    u64("end_tag", 24, "as tag"),
    doc="A store, or an interrupt; the first 16 bytes of the receiver's memory are scratchpads.",
    source="NTRDMA v0.1 ntrdma_tcp.c",
    order="little",
)
