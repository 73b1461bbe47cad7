"""Kinds of events in the bus log, and purposes of DMA transfers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

VERSION = 5
"""The version of logs that are written and read."""


class Kind(IntEnum):
    """The kind of an event in the log."""

    MMIO_READ = 0
    MMIO_WRITE = 1
    DMA_READ = 2
    DMA_WRITE = 3
    IRQ = 4
    COMMAND = 5
    RESET = 6
    CONFIG_READ = 7
    CONFIG_WRITE = 8
    NOTE = 9
    WIRE = 10  # a message leaves the port: device/buslog/wire.py
    BLUEFLAME = 11  # a whole send entry from a BlueFlame page
    FAULT = 12  # a fault rule takes a message of a link, or delivers one that waited
    LINK = 13  # a cable or the link of a port changed; the address is the port's number
    CONTROL = 14  # a line of the control socket that changes something (device.server.control)


class What(IntEnum):
    """The purpose of a DMA transfer; `obj` of the event is the number named in brackets."""

    OTHER = 0
    PAYLOAD = 1  # [QPN] message bytes of a send, write, read or atomic
    SQ_WQE = 2  # [QPN] send work queue entry, except those of UD queue pairs
    RQ_WQE = 3  # [QPN] receive work queue entry
    SRQ_WQE = 4  # [SRQN]
    CQE = 5  # [CQN] completion queue entry
    EQE = 6  # [EQN] event queue entry
    DOORBELL_RECORD = 7  # [QPN or CQN]
    MTT = 8  # translation entries
    MPT = 9  # [MPT index]
    MAILBOX_IN = 10  # [opcode]
    MAILBOX_OUT = 11  # [opcode]
    PAGE_LIST = 12  # [QPN] of a fast registration
    FRAME = 13  # [QPN] Ethernet frame
    MAD = 14  # [QPN] management datagram with its headers
    OWNERSHIP = 15  # [CQN or EQN] owner byte, or the initial fill of a queue
    UD_WQE = 16  # [QPN] send work queue entry with an address vector
    REQUEST = 17  # [target QPN] on the wire, of a connected queue pair
    RESPONSE = 18  # [target QPN] on the wire: acknowledgement, NAK, read data, atomic result
    DATAGRAM = 19  # [target QPN] on the wire, unconnected
    DESCRIPTOR = 20  # [channel] of a DMA engine
    COMPLETION = 21  # [channel] completion word of a DMA engine
    COPY = 22  # [channel] bytes a DMA engine moves
    WINDOW = 23  # [BAR] an access through the peer's window, with the address on this side
    MESSAGE = 24  # interrupt message: a write to 0xFEExxxxx
    COMMAND_ENTRY = 25  # [slot] of a queue of firmware commands
    FRAME_WQE = 26  # [SQN] entry of a send queue that has nothing but frames


SEND_ENTRIES: Final = (What.SQ_WQE, What.UD_WQE, What.FRAME_WQE)
"""The transfers that fetch entries of send queues."""
