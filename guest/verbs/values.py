"""The plain values that verbs take and give: pieces of memory, completions, attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bluebridge.guest.verbs.enums import AccessFlags, QpState, WcFlags, WcOpcode, WcStatus


class Sge(NamedTuple):
    """A piece of registered memory: `address` is an IOVA of the region that `lkey` names."""

    address: int
    length: int
    lkey: int


class AddressVector:
    """The way to a peer, for a connected queue pair or one datagram (ibv_ah_attr).

    Each kind of network has a subclass with its own fields, such as `RoceAddress`. Users get one
    from `Device.address_vector` and pass it on unread.
    """

    __slots__ = ()


@dataclass(slots=True)
class RecvWr:
    """A receive work request: the memory that one incoming message fills."""

    wr_id: int = 0
    sg_list: Sequence[Sge] = ()


@dataclass(slots=True, init=False)
class Wc:
    """A work completion. Only `wr_id`, `status`, `qp_num` and `vendor_err` count on an error.

    `imm` is the immediate, or the invalidated rkey with `WcFlags.WITH_INV`. `byte_len` of a
    datagram counts the 40 bytes of GRH area. `src_qp` and `smac` belong to datagrams.
    """

    wr_id: int
    status: WcStatus
    opcode: WcOpcode
    qp_num: int
    byte_len: int
    imm: int
    flags: WcFlags | int
    src_qp: int
    smac: bytes
    vendor_err: int

    # Written out, since the one that dataclass makes at run time is not compiled.
    def __init__(
        self,
        wr_id: int,
        status: WcStatus,
        opcode: WcOpcode,
        qp_num: int,
        byte_len: int = 0,
        imm: int = 0,
        flags: WcFlags | int = 0,
        src_qp: int = 0,
        smac: bytes = b"",
        vendor_err: int = 0,
    ) -> None:
        self.wr_id = wr_id
        self.status = status
        self.opcode = opcode
        self.qp_num = qp_num
        self.byte_len = byte_len
        self.imm = imm
        self.flags = flags
        self.src_qp = src_qp
        self.smac = smac
        self.vendor_err = vendor_err


@dataclass(slots=True)
class QpAttr:
    """Attributes for `QueuePair.modify`; None means "not part of this transition".

    `path_mtu` in bytes (256 … 4096), `timeout` and `min_rnr_timer` are InfiniBand codes.
    """

    state: QpState | None = None
    access: AccessFlags | int | None = None
    qkey: int | None = None
    address_vector: AddressVector | None = None
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
class DeviceAttr:
    """Limits and abilities of a device; `page_size_cap` has a bit for each page size in bytes."""

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
    """State of the port: `active_mtu` in bytes. MAC, Ethernet MTU and GIDs of Ethernet ports."""

    active: bool
    mac: bytes = b""
    active_mtu: int = 0
    eth_mtu: int = 0
    gids: tuple[bytes, ...] = ()
