"""Work requests, completions and attributes: the plain values that verbs take and give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bluebridge.guest.verbs.enums import (
    AccessFlags,
    QpState,
    QpType,
    SendFlags,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)

if TYPE_CHECKING:
    from bluebridge.guest.hca.memory_regions import FastRegMr
    from bluebridge.guest.hca.queues.cq import Cq
    from bluebridge.guest.hca.queues.srq import Srq


class Sge(NamedTuple):
    """A piece of registered memory: `address` is an IOVA of the region that `lkey` names."""

    address: int
    length: int
    lkey: int


@dataclass(slots=True, frozen=True)
class Ah:
    """Where a datagram goes over RoCE: the address handle of ibverbs."""

    dgid: bytes
    dmac: bytes
    sgid_index: int = 0
    traffic_class: int = 0
    flow_label: int = 0
    hop_limit: int = 64
    service_level: int = 0


@dataclass(slots=True)
class SendWr:
    """A send work request.

    `imm` is the immediate value (host order integer); `invalidate_rkey` belongs to SEND_WITH_INV
    and LOCAL_INV. `inline_data` goes into the queue entry itself, `sg_list` is ignored then.
    Atomics: `compare_add` and `swap` as in ibverbs, with their masks for the masked forms.
    REG_MR: `mr`, the `pages` that back it (`page_size` bytes each) and `key`, `access`, `iova`,
    `length` of the registration. Datagrams: `ah`, `remote_qpn`, `remote_qkey`.
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
    mr: FastRegMr | None = None
    pages: Sequence[int] = ()
    page_size: int = 4096
    key: int = 0
    access: AccessFlags | int = 0
    iova: int = 0
    length: int = 0
    ah: Ah | None = None
    remote_qpn: int = 0
    remote_qkey: int = 0


@dataclass(slots=True)
class RecvWr:
    """A receive work request."""

    wr_id: int = 0
    sg_list: Sequence[Sge] = ()


@dataclass(slots=True)
class Wc:
    """A work completion. Only `wr_id`, `status`, `qp_num` and `vendor_err` count on an error.

    `imm` is the immediate, or the invalidated rkey with `WcFlags.WITH_INV`. `byte_len` of a
    datagram counts the 40 bytes of GRH area. `src_qp` and `smac` belong to datagrams.
    """

    wr_id: int
    status: WcStatus
    opcode: WcOpcode
    qp_num: int
    byte_len: int = 0
    imm: int = 0
    flags: WcFlags | int = 0
    src_qp: int = 0
    smac: bytes = b""
    vendor_err: int = 0


@dataclass(slots=True)
class QpInit:
    """How to create a queue pair; `max_inline` bytes fit into one send entry."""

    type: QpType
    send_cq: Cq
    recv_cq: Cq
    max_send_wr: int = 64
    max_recv_wr: int = 64
    max_send_sge: int = 2
    max_recv_sge: int = 1
    max_inline: int = 0
    srq: Srq | None = None
    signal_all: bool = False


@dataclass(slots=True)
class PathAttr:
    """The way to the peer of a connected queue pair, RoCE form."""

    dgid: bytes
    dmac: bytes
    sgid_index: int = 0
    traffic_class: int = 0
    flow_label: int = 0
    hop_limit: int = 64
    service_level: int = 0


@dataclass(slots=True)
class QpAttr:
    """Attributes for `Qp.modify`; None means "not part of this transition".

    `path_mtu` in bytes (256 … 4096), `timeout` and `min_rnr_timer` are InfiniBand codes.
    """

    state: QpState | None = None
    access: AccessFlags | int | None = None
    qkey: int | None = None
    path: PathAttr | None = None
    path_mtu: int | None = None
    dest_qpn: int | None = None
    rq_psn: int | None = None
    sq_psn: int | None = None
    max_rd_atomic: int | None = None
    max_dest_rd_atomic: int | None = None
    min_rnr_timer: int | None = None
    timeout: int | None = None
    retry_count: int | None = None
    rnr_retry: int | None = None


@dataclass(slots=True, frozen=True)
class AsyncEvent:
    """An asynchronous event: EventType number, subtype, and the QP, CQ, SRQ or port number."""

    type: int
    subtype: int
    number: int


@dataclass(slots=True, frozen=True)
class DeviceAttr:
    """What the device is and can do."""

    name: str
    fw_version: str
    node_guid: int
    max_qp_wr: int
    max_cqe: int
    max_sge: int
    max_qp_rd_atomic: int
    max_msg: int
    page_size_cap: int
    max_fast_reg_pages: int
    local_inv: bool
    fast_reg: bool
    flags: int


@dataclass(slots=True, frozen=True)
class PortAttr:
    """State of the port: `active_mtu` in bytes, `gids` by index."""

    active: bool
    mac: bytes
    active_mtu: int
    eth_mtu: int
    gids: tuple[bytes, ...] = field(default=())
