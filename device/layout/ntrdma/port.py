"""Scratchpads, states and blocks of NTRDMA ports; virtual doorbells; stores over TCP."""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import Final

from bluebridge.device.layout.fields import Struct, bits, u32, u64

VERSION_TAG: Final = 0xEC7B5719
VERSION: Final = 1
"""The protocol version that is supported, both the highest and the lowest."""
COMMAND_CAPACITY: Final = 0x10
ETHERNET_CAPACITY: Final = 0x400
DOORBELLS: Final = 0x400
BELL_COMMAND: Final = 0
"""Number of the bell that announces a command."""
BELL_RESPONSE: Final = 1
"""Number of the bell that announces a response."""
BELL_ETHERNET: Final = 4
FIRST_DYNAMIC_BELL: Final = 8
_table = partial(Struct, source="NTRDMA v0.1 ntrdma_port.h, ntrdma_port_v1.c", order="little")


class Spad(IntEnum):
    """Scratchpads, each written by the peer."""

    PING = 0
    VERSION = 1
    ADDRESS_LOW = 2
    ADDRESS_HIGH = 3


class PortState(IntEnum):
    """States of a port."""

    QUIESCE = 0
    RESET_REQUESTED = 1
    RESET_ACKNOWLEDGED = 2
    SPADS_READY = 3
    INIT_READY = 4
    CONF_READY = 5
    READY = 6


PING = _table(
    "NTRDMA_PING",
    4,
    bits("sequence", 0, 4, 15, 0, "one more at every write"),
    bits("state", 0, 4, 31, 16, "PortState"),
    doc="The ping word: in scratchpad 0 up to state 5, in the peer's block from state 4 on.",
)
VERSIONS = _table(
    "NTRDMA_VERSIONS",
    4,
    bits("highest", 0, 4, 15, 0),
    bits("lowest", 0, 4, 31, 16),
    doc="Scratchpad 1: the versions that a port speaks.",
)
PEER_INFO = _table(
    "NTRDMA_PEER_INFO",
    144,
    u32("version_tag", 0, "0xec7b5719"),
    u32("ping", 4, "NTRDMA_PING"),
    u64("msi_address", 8, "where to write msi_data to interrupt"),
    u32("msi_data", 16),
    u32("msi_count", 20, "1"),
    u64("bells", 24, "array of virtual doorbells, u32 each"),
    u32("bell_flags", 32, "0"),
    u32("bell_count", 36),
    u32("command_capacity", 40, "entries of the command ring"),
    u32("command_index", 44, "where the ring of commands stands"),
    u64("responses", 48, "where responses go"),
    u64("response_index", 56, "where the count of executed commands goes"),
    u32("bell_response", 64),
    u32("bell_command", 68),
    u32("ethernet_capacity", 72),
    u32("ethernet_index", 76),
    u64("ethernet_completions", 80, "where completions of received frames go"),
    u64("ethernet_consumed", 88, "where their index goes"),
    u32("ethernet_bell", 96),
    u32("init_tag", 100, "0xec7b5719: the init block is complete"),
    u64("commands", 104, "where commands go"),
    u64("command_produced", 112, "where their index goes"),
    u64("ethernet_buffers", 120, "where buffers for frames go"),
    u64("ethernet_produced", 128, "where their index goes"),
    u32("ethernet_send_bell", 136),
    u32("conf_tag", 140, "0xec7b5719: the conf block is complete"),
    doc="Written by the peer: the header, the init block from 8, the conf block from 104 on.",
)
INIT_BLOCK: Final = slice(8, 104)
CONF_BLOCK: Final = slice(104, 144)


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
