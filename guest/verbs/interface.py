"""The interface that every provider of verbs offers: device, protection domain, queue pair.

Providers implement it by structure. The queues and regions are in `objects`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bluebridge.guest.drivers.bus.interface import DmaMemory
from bluebridge.guest.verbs.enums import AccessFlags, QpState, QpType
from bluebridge.guest.verbs.errors import DeviceLost
from bluebridge.guest.verbs.objects import (
    CompletionChannel,
    CompletionQueue,
    FastRegistration,
    MemoryRegion,
    SharedReceiveQueue,
)
from bluebridge.guest.verbs.requests import QpInit, SendWr
from bluebridge.guest.verbs.values import AddressVector, DeviceAttr, PortAttr, QpAttr, RecvWr

HEALTH_SECONDS = 1.0
"""The time that a wait may last between two calls of `Health.check`."""


class Health(Protocol):
    """Whether the device is still there: waiting code asks it every `HEALTH_SECONDS`."""

    @property
    def lost(self) -> bool:
        """Whether the device was found gone or broken; it stays so until it is opened anew."""

    def check(self) -> None:
        """Raise `DeviceLost` if the device is lost. May be called from any thread."""

    def loss(self) -> DeviceLost:
        """The error to raise, or to tell, of a device that is lost."""


class EthernetPort(Protocol):
    """A port of a RoCE device: its addresses, and Ethernet frames."""

    @property
    def number(self) -> int:
        """Which one of the device's ports, from 1 on."""

    @property
    def mac(self) -> bytes:
        """The MAC address of the port, 6 bytes."""

    @property
    def gids(self) -> list[bytes]:
        """The GIDs of 16 bytes by index; 0 is the link-local one, empty places are zeros."""

    def add_gid(self, gid: bytes) -> int:
        """Put a GID into the table; its index. Raises `VerbsError` when there is no room."""

    def remove_gid(self, gid: bytes) -> None:
        """Take a GID out of the table; the others keep their indices."""

    def steer_frames(self, qpn: int, groups: Sequence[bytes] = ()) -> None:
        """Deliver Ethernet frames for us, broadcasts and multicasts to queue pair `qpn`."""


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
        """RESET to INIT with what peers may do; datagram queue pairs need a Q_Key."""

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
        """INIT to RTR; address vector and peer belong to connected queue pairs."""

    def modify_rts(
        self,
        sq_psn: int = 0,
        *,
        timeout: int = 14,
        retry_count: int = 7,
        rnr_retry: int = 7,
        max_rd_atomic: int = 16,
    ) -> None:
        """RTR to RTS; the parameters but the PSN are those of an RC queue pair."""

    def modify_err(self) -> None:
        """Go to ERR: everything posted is flushed."""

    def modify_reset(self) -> None:
        """Go to RESET: everything posted is forgotten, unread completions too."""

    def query_state(self) -> QpState:
        """The state the device has the queue pair in."""

    def post_send(self, wrs: SendWr | Sequence[SendWr]) -> None:
        """Post one request or a chain.

        Raises `VerbsError` at the first request that does not fit; those before it are posted.
        """

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post one receive request or several; raises `VerbsError` like `post_send`."""

    def destroy(self) -> None:
        """Reset and give everything back; a second call does nothing."""


class ProtectionDomain(Protocol):
    """A set of regions and queue pairs that may be used together."""

    @property
    def pdn(self) -> int:
        """The number of the protection domain."""

    def get_dma_mr(self, access: AccessFlags | int = AccessFlags.LOCAL_WRITE) -> MemoryRegion:
        """A region over all of memory; addresses in it are DMA addresses."""

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
        """A region for REG_MR work requests of up to `max_pages` pages."""

    def create_qp(self, init: QpInit) -> QueuePair:
        """A queue pair in state RESET."""

    def create_srq(self, max_wr: int, max_sge: int = 1) -> SharedReceiveQueue:
        """A shared receive queue for `max_wr` requests."""

    def close(self) -> None:
        """Give the number back; everything in the domain must be gone."""


class Device(Protocol):
    """An open device; a context manager that closes it."""

    @property
    def name(self) -> str:
        """The device's name in messages, such as mlx4_0."""

    @property
    def health(self) -> Health:
        """The object that knows whether the device is still there."""

    @property
    def ethernet_port(self) -> EthernetPort | None:
        """The port it is bound to, if the device speaks RoCE; None on other networks."""

    def port(self, number: int) -> Device:
        """The same device, bound to another port, from 1 on: what is made with it is on that port.

        The port comes up when it is asked for first, and the same device comes each time. Closing
        it takes the port down; closing the device that was opened closes all. Memory and regions
        are common, protection domains too but for their queue pairs. Raises `VerbsError` when
        there is no such port.
        """

    @property
    def local_dma_lkey(self) -> int | None:
        """The key for local use that reaches all DMA memory, in every PD; None: there is none."""

    @property
    def address(self) -> bytes:
        """The bytes of which a peer makes an address vector; their content is the device's."""

    def address_vector(self, address: bytes) -> AddressVector:
        """The way to the device whose `address` that is. Raises `VerbsError` for nonsense."""

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Contiguous zeroed DMA memory; raises `MemoryError`."""

    def alloc_pd(self) -> ProtectionDomain:
        """Make a protection domain."""

    def create_comp_channel(self) -> CompletionChannel:
        """A completion channel; raises `VerbsError` when there is no interrupt for it."""

    def create_cq(self, entries: int, channel: CompletionChannel | None = None) -> CompletionQueue:
        """A completion queue of at least `entries`; `channel` is where its events go."""

    def query_device(self) -> DeviceAttr:
        """Return the device's limits and abilities."""

    def query_port(self) -> PortAttr:
        """Return the port's state now."""

    def close(self) -> None:
        """Give everything back that is still open; a second call does nothing."""

    def __enter__(self) -> Device: ...

    def __exit__(self, *_exc: object) -> None: ...
