"""The card's own numbers for the terms of the engines: commands, events and entries."""

from __future__ import annotations

from typing import Final

from bluebridge.device.frames.receiving import (
    FINDINGS,
    HAS_OPTIONS,
    IP_GOOD,
    IS_FRAGMENT,
    IS_IPV4,
    IS_IPV6,
    IS_TCP,
    IS_UDP,
)
from bluebridge.device.layout.mlx4.commands import Status
from bluebridge.device.layout.mlx4.contexts import QpState
from bluebridge.device.layout.mlx4.cqe import CompletionStatus as Syndrome
from bluebridge.device.layout.mlx4.cqe import FrameStatus, RecvOpcode, vendor_syndrome
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from bluebridge.device.layout.net.roce import Op
from bluebridge.device.rdma import vocabulary
from bluebridge.device.rdma.vocabulary import AsyncEvent, CompletionStatus, PairState
from bluebridge.device.refusal import Reason

STATUSES: Final = {
    Reason.BAD_PARAMETER: Status.BAD_PARAM,
    Reason.BAD_SIZE: Status.BAD_SIZE,
    Reason.BAD_INDEX: Status.BAD_INDEX,
    Reason.BAD_STATE: Status.BAD_RES_STATE,
    Reason.BAD_PAIR_STATE: Status.BAD_QP_STATE,
    Reason.BUSY: Status.RESOURCE_BUSY,
    Reason.LIMIT: Status.EXCEED_LIM,
    Reason.BOUND: Status.REG_BOUND,
    Reason.UNSUPPORTED: Status.BAD_SYS_STATE,
    Reason.UNANSWERED: Status.BAD_PKT,
}
"""Command status by the reason of a refusal."""

STATES: Final = {state: QpState[state.name] for state in PairState}
"""State of a queue pair in its context, by the engines' state."""

SYNDROMES: Final = {status: int(Syndrome[status.name]) for status in CompletionStatus}
"""Syndrome of a completion in error, by the engines' status."""

VENDOR_SYNDROMES: Final = {status: vendor_syndrome(SYNDROMES[status]) for status in SYNDROMES}
"""Vendor syndrome of a completion in error, by the engines' status."""

EVENTS: Final = {event: EventType[event.name] for event in AsyncEvent}
"""Type of an event about a queue pair, by the engines' event."""

_OPCODES: Final = {
    vocabulary.NOP: SendOpcode.NOP,
    vocabulary.SEND_INV: SendOpcode.SEND_INVAL,
    vocabulary.WRITE: SendOpcode.RDMA_WRITE,
    vocabulary.WRITE_IMM: SendOpcode.RDMA_WRITE_IMM,
    vocabulary.SEND: SendOpcode.SEND,
    vocabulary.SEND_IMM: SendOpcode.SEND_IMM,
    vocabulary.LARGE_SEND: SendOpcode.LSO,
    vocabulary.READ: SendOpcode.RDMA_READ,
    vocabulary.COMPARE_SWAP: SendOpcode.ATOMIC_CS,
    vocabulary.FETCH_ADD: SendOpcode.ATOMIC_FA,
    vocabulary.MASKED_COMPARE_SWAP: SendOpcode.MASKED_ATOMIC_CS,
    vocabulary.MASKED_FETCH_ADD: SendOpcode.MASKED_ATOMIC_FA,
    vocabulary.BIND: SendOpcode.BIND_MW,
    vocabulary.REGISTER: SendOpcode.FAST_REG_MR,
    vocabulary.INVALIDATE: SendOpcode.LOCAL_INVAL,
}
SEND_OPCODES: Final = tuple(int(_OPCODES[operation]) for operation in range(len(_OPCODES)))
"""The opcode of a send entry and of its completion, by operation."""

UNKNOWN: Final = -1
OPERATIONS: Final = tuple(
    next((operation for operation, known in _OPCODES.items() if known == opcode), UNKNOWN)
    for opcode in range(32)
)
"""The operation of a send entry, by opcode; `UNKNOWN` for codes that no driver uses."""

RECEIVE_OPCODES: Final = {
    Op.SEND: int(RecvOpcode.SEND),
    Op.SEND_IMM: int(RecvOpcode.SEND_WITH_IMM),
    Op.SEND_INV: int(RecvOpcode.SEND_WITH_INVALIDATE),
    Op.WRITE_IMM: int(RecvOpcode.RDMA_WRITE_WITH_IMM),
}
"""The opcode of a receive's completion, by what the peer sent."""

_FRAME_STATUS: Final = {
    IS_IPV4: FrameStatus.IPV4,
    IS_FRAGMENT: FrameStatus.IPV4_FRAGMENT,
    IS_IPV6: FrameStatus.IPV6,
    HAS_OPTIONS: FrameStatus.IPV4_OPTIONS,
    IS_TCP: FrameStatus.TCP,
    IS_UDP: FrameStatus.UDP,
    IP_GOOD: FrameStatus.IP_OK,
}
FRAME_STATUSES: Final = tuple(
    sum(int(status) for bit, status in _FRAME_STATUS.items() if found & bit)
    for found in range(1 << FINDINGS)
)
"""The status of a frame's completion, by all findings on it."""
