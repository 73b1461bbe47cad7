"""The interface that every provider of verbs offers: device, protection domain, queue pair.

Providers implement it by structure. The queues and regions are in `values`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bluebridge.guest.bus.interface import DmaMemory
from bluebridge.guest.errors import DeviceLost
from bluebridge.guest.verbs.enums import AccessFlags, QpState, QpType
from bluebridge.guest.verbs.values import (
    AddressVector,
    CompletionChannel,
    CompletionQueue,
    DeviceAttr,
    FastRegistration,
    MemoryRegion,
    PortAttr,
    QpAttr,
    QpInit,
    RecvWr,
    SendWr,
    SharedReceiveQueue,
)

HEALTH_SECONDS = 1.0
"""The time that a wait may last between two calls of `Health.check`."""


class Health(Protocol):
    """Tells if the device is still present; waiting code calls `check` every `HEALTH_SECONDS`."""

    @property
    def lost(self) -> bool:
        """True once the device was found absent or broken, until it is opened anew."""

    def check(self) -> None:
        """Raise `DeviceLost` if the device is lost. May be called from any thread."""

    def loss(self) -> DeviceLost:
        """Return the error for a lost device, to raise or to report."""


class EthernetPort(Protocol):
    """A port of a RoCE device: its MAC address and GIDs, and the steering of Ethernet frames."""

    @property
    def number(self) -> int:
        """The number of the port on its device, counted from 1."""

    @property
    def mac(self) -> bytes:
        """The MAC address of the port, 6 bytes."""

    @property
    def gids(self) -> list[bytes]:
        """The GIDs of 16 bytes by index; 0 is the link-local one, empty places are zeros."""

    def add_gid(self, gid: bytes) -> int:
        """Put a GID (16 bytes) into the table and return its index.

        Raises `VerbsError` when there is no room.
        """

    def roce_version(self, gid_index: int) -> int:
        """Return the version of RoCE, 1 or 2, that packets from a GID of the table have."""

    def remove_gid(self, gid: bytes) -> None:
        """Take a GID out of the table; the other GIDs keep their indices."""

    def steer_frames(self, qpn: int, groups: Sequence[bytes] = ()) -> None:
        """Deliver frames to the port's MAC, broadcasts and multicasts to queue pair `qpn`."""


class QueuePair(Protocol):
    """A send queue and a receive queue with a state."""

    @property
    def qpn(self) -> int:
        """The number of the queue pair."""

    @property
    def type(self) -> QpType:
        """The kind of the queue pair."""

    @property
    def state(self) -> QpState:
        """The state that software set last; `query_state` asks the device."""

    def modify(self, attr: QpAttr) -> None:
        """Change state and attributes; raises `VerbsError`."""

    def modify_init(self, access: AccessFlags | int = 0, qkey: int | None = None) -> None:
        """Go from RESET to INIT with what peers may do; datagram queue pairs need a Q_Key."""

    def modify_rtr(
        self,
        address_vector: AddressVector | None = None,
        dest_qpn: int | None = None,
        rq_psn: int = 0,
        *,
        path_mtu: int = 1024,
        max_dest_rd_atomic: int = 16,
        min_rnr_timer: int = 12,
    ) -> None:
        """Go from INIT to RTR; address vector and peer belong to connected queue pairs."""

    def modify_rts(
        self,
        sq_psn: int = 0,
        *,
        timeout: int = 14,
        retry_count: int = 7,
        rnr_retry: int = 7,
        max_rd_atomic: int = 16,
    ) -> None:
        """Go from RTR to RTS; the parameters but the PSN are those of an RC queue pair."""

    def modify_err(self) -> None:
        """Go to ERR: everything posted is flushed."""

    def modify_reset(self) -> None:
        """Go to RESET: everything posted is forgotten, unread completions too."""

    def query_state(self) -> QpState:
        """Ask the device for the state of the queue pair."""

    def post_send(self, wrs: SendWr | Sequence[SendWr]) -> None:
        """Post one request or a chain.

        Raises `VerbsError` at the first request that does not fit; those before it are posted.
        """

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post one receive request or several; raises `VerbsError` like `post_send`."""

    def destroy(self) -> None:
        """Reset the queue pair and free its resources; a second call does nothing."""


class ProtectionDomain(Protocol):
    """A set of regions and queue pairs that may be used together."""

    @property
    def pdn(self) -> int:
        """The number of the protection domain."""

    def get_dma_mr(self, access: AccessFlags | int = AccessFlags.LOCAL_WRITE) -> MemoryRegion:
        """Register all of memory; addresses in the region are DMA addresses."""

    def reg_mr(
        self,
        memory: int | Sequence[int],
        length: int,
        iova: int | None = None,
        access: AccessFlags | int = AccessFlags.LOCAL_WRITE,
        page_shift: int = 12,
    ) -> MemoryRegion:
        """Register `length` bytes; peers and work requests address them from `iova` on.

        `memory` is the DMA address of contiguous memory, or the addresses of all its pages of
        `1 << page_shift` bytes; the first page's offset is that of `iova`. `iova` defaults to the
        (first) address. Raises `VerbsError`.
        """

    def alloc_fast_reg_mr(self, max_pages: int) -> FastRegistration:
        """Make a region for REG_MR work requests of up to `max_pages` pages."""

    def create_qp(self, init: QpInit) -> QueuePair:
        """Make a queue pair in state RESET."""

    def create_srq(self, max_wr: int, max_sge: int = 1) -> SharedReceiveQueue:
        """Make a shared receive queue for `max_wr` requests."""

    def close(self) -> None:
        """Free the domain's number; everything in the domain must have been closed before."""


class Device(Protocol):
    """An open device; a context manager that closes it."""

    @property
    def name(self) -> str:
        """The device's name in messages, such as mlx4_0."""

    @property
    def health(self) -> Health:
        """The object that knows if the device is still present."""

    @property
    def ethernet_port(self) -> EthernetPort | None:
        """The port that this device is bound to if it speaks RoCE, None on other networks."""

    def port(self, number: int) -> Device:
        """Return the same device bound to port `number`, from 1 on, for objects on that port.

        The port comes up at the first call for it, and each call for a port returns the same
        device. Closing that device takes its port down; closing the device that was opened closes
        all. Memory and regions are common to the ports, protection domains too but for their queue
        pairs. Raises `VerbsError` when there is no such port.
        """

    @property
    def local_dma_lkey(self) -> int | None:
        """The local key that reaches all DMA memory in every PD, None when the device has none."""

    @property
    def address(self) -> bytes:
        """The bytes from which a peer makes an address vector, in a form of the device's kind."""

    def address_vector(self, address: bytes) -> AddressVector:
        """Return the way to the device that has `address`; raises `VerbsError` if malformed."""

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Allocate contiguous zeroed DMA memory; raises `MemoryError`."""

    def alloc_pd(self) -> ProtectionDomain:
        """Make a protection domain."""

    def create_comp_channel(self) -> CompletionChannel:
        """Make a completion channel; raises `VerbsError` when no interrupt is free for it."""

    def create_cq(self, entries: int, channel: CompletionChannel | None = None) -> CompletionQueue:
        """Make a completion queue of at least `entries`; `channel` is where its events go."""

    def query_device(self) -> DeviceAttr:
        """Return the device's limits and abilities."""

    def query_port(self) -> PortAttr:
        """Return the present state of the port."""

    def close(self) -> None:
        """Close everything of the device that is still open; a second call does nothing."""

    def __enter__(self) -> Device: ...

    def __exit__(self, *_exc: object) -> None: ...
