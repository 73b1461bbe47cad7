"""The values that verbs take and give, and the queues and regions that they name, as protocols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

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


class CompletionQueue(Protocol):
    """A queue of the completions of work requests, in order."""

    @property
    def cqn(self) -> int:
        """The number of the completion queue."""

    @property
    def channel(self) -> CompletionChannel | None:
        """The channel that receives the queue's events, if there is one."""

    def poll(self, limit: int = 16) -> list[Wc]:
        """Return up to `limit` completions, oldest first; an empty list when there are none."""

    def req_notify(self, solicited_only: bool = False) -> None:
        """Ask for one event at the next completion, or the next solicited or failed one.

        The event comes at once when completions are waiting that were not polled yet. Raises
        `VerbsError` without a channel.
        """

    def destroy(self) -> None:
        """Free the queue, whose queue pairs must be gone; a second call does nothing."""


class CompletionChannel(Protocol):
    """A source of events that name completion queues with a completion after `req_notify`."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when there is an event.

        Then call `get_event(0)` until it gives None.
        """

    def get_event(self, timeout: float | None = None) -> CompletionQueue | None:
        """Return the queue of the next event; waits `timeout` seconds, with None without end.

        Returns None after the time has passed, after `wake` and once the channel is closed. Raises
        `DeviceLost` within seconds when the device is lost.
        """

    def wake(self) -> None:
        """Make one waiting `get_event`, or the next one, return None."""

    def close(self) -> None:
        """Close the channel; threads that wait in `get_event` return."""


class SharedReceiveQueue(Protocol):
    """A queue of receive requests that several queue pairs take from."""

    @property
    def srqn(self) -> int:
        """The number of the shared receive queue."""

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post receive requests; raises `VerbsError` at the first that does not fit."""

    def destroy(self) -> None:
        """Free the queue, whose queue pairs must be gone."""


class MemoryRegion(Protocol):
    """A piece of memory that is registered with a device."""

    @property
    def lkey(self) -> int:
        """The key for local work requests."""

    @property
    def rkey(self) -> int:
        """The key that a peer needs for RDMA to the region."""

    def close(self) -> None:
        """Deregister the region; a second call does nothing."""


class FastRegistration(MemoryRegion, Protocol):
    """A region that REG_MR work requests fill and LOCAL_INV or a peer's SEND_WITH_INV empties."""

    @property
    def max_pages(self) -> int:
        """The number of pages that a registration may have."""

    def next_key(self) -> int:
        """Count up the key's low byte for the next REG_MR and return the new key.

        As Linux's ib_update_fast_reg_key.
        """


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


@dataclass(slots=True, frozen=True)
class RoceAddress(AddressVector):
    """A peer on Ethernet: its GID of 16 bytes, its MAC address of 6, and the header fields.

    `sgid_index` is the place of the source GID in the port's own table.
    """

    dgid: bytes
    dmac: bytes
    sgid_index: int = 0
    traffic_class: int = 0
    flow_label: int = 0
    hop_limit: int = 64
    service_level: int = 0
