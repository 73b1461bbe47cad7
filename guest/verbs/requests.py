"""Send work requests, and how to create a queue pair: values that name other objects of verbs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bluebridge.guest.verbs.enums import AccessFlags, QpType, SendFlags, WrOpcode
from bluebridge.guest.verbs.objects import CompletionQueue, FastRegistration, SharedReceiveQueue
from bluebridge.guest.verbs.values import AddressVector, Sge


@dataclass(slots=True)
class SendWr:
    """A send work request.

    `imm` is the immediate value (host order integer); `invalidate_rkey` belongs to SEND_WITH_INV
    and LOCAL_INV. `inline_data` goes into the queue entry itself, `sg_list` is ignored then.
    Atomics: `compare_add` and `swap` as in ibverbs, with their masks for the masked forms.
    REG_MR: `mr`, the `pages` that back it (`page_size` bytes each) and `key`, `access`, `iova`,
    `length` of the registration. Datagrams: `address_vector`, `remote_qpn`, `remote_qkey`.
    """

    wr_id: int = 0
    opcode: WrOpcode = WrOpcode.SEND
    sg_list: Sequence[Sge] = ()
    send_flags: SendFlags | int = SendFlags.SIGNALED
    imm: int = 0
    invalidate_rkey: int = 0
    inline_data: bytes | bytearray | memoryview | None = None
    remote_addr: int = 0
    rkey: int = 0
    compare_add: int = 0
    swap: int = 0
    compare_add_mask: int = (1 << 64) - 1
    swap_mask: int = (1 << 64) - 1
    mr: FastRegistration | None = None
    pages: Sequence[int] = ()
    page_size: int = 4096
    key: int = 0
    access: AccessFlags | int = 0
    iova: int = 0
    length: int = 0
    address_vector: AddressVector | None = None
    remote_qpn: int = 0
    remote_qkey: int = 0


@dataclass(slots=True)
class QpInit:
    """The attributes of a new queue pair; up to `max_inline` bytes fit into one send entry."""

    type: QpType
    send_cq: CompletionQueue
    recv_cq: CompletionQueue
    max_send_wr: int = 64
    max_recv_wr: int = 64
    max_send_sge: int = 2
    max_recv_sge: int = 1
    max_inline: int = 0
    srq: SharedReceiveQueue | None = None
    signal_all: bool = False
