"""The ConnectX-5 as a device of verbs: bring-up and tear-down, its port, its protection domains."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.drivers.common.blueflame import BlueFlameUse
from bluebridge.guest.drivers.common.context import Domain, OpenPort
from bluebridge.guest.drivers.common.event_queue import EventQueue
from bluebridge.guest.drivers.common.qp_attributes import own
from bluebridge.guest.drivers.common.regions import MAX_FAST_REG_PAGES
from bluebridge.guest.drivers.common.vectors import DEFAULT_VECTORS
from bluebridge.guest.drivers.mlx5.adapter import Adapter
from bluebridge.guest.drivers.mlx5.cq import Cq
from bluebridge.guest.drivers.mlx5.event_queues import AsyncEventQueue, CompChannel
from bluebridge.guest.drivers.mlx5.frame_qp import FrameQp
from bluebridge.guest.drivers.mlx5.keys import DmaMr, FastRegMr, Mr
from bluebridge.guest.drivers.mlx5.ports import Port
from bluebridge.guest.drivers.mlx5.qp import Qp
from bluebridge.guest.drivers.mlx5.work_queues import Srq
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import AccessFlags, QpType
from bluebridge.guest.verbs.values import CompletionChannel, CompletionQueue, DeviceAttr, QpInit

NAME: Final = "mlx5_0"
_PAGE_SIZES: Final = (1 << 64) - (1 << 12)


class Pd(Domain):
    """A protection domain; `port` is for its queue pairs."""

    def __init__(self, adapter: Adapter, port: Port) -> None:
        self._adapter = adapter
        self._port = port
        self.pdn = adapter.commands.make(Opcode.ALLOC_PD)

    def get_dma_mr(self, access: AccessFlags | int = AccessFlags.LOCAL_WRITE) -> DmaMr:
        """Register all of memory; addresses in the region are DMA addresses."""
        return DmaMr(self._adapter, self.pdn, access)

    def _register(
        self, pages: Sequence[int], shift: int, iova: int, length: int, access: AccessFlags | int
    ) -> Mr:
        return Mr(self._adapter, self.pdn, pages, shift, iova, length, access)

    def alloc_fast_reg_mr(self, max_pages: int) -> FastRegMr:
        """Make a region for REG_MR work requests of up to `max_pages` pages (511 at most)."""
        return FastRegMr(self._adapter, self.pdn, max_pages)

    def create_qp(self, init: QpInit) -> Qp | FrameQp:
        """Make a queue pair in state RESET."""
        if init.type is QpType.RAW_ETH:
            return FrameQp(self._adapter, self.pdn, init, self._port)
        return Qp(self._adapter, self.pdn, init)

    def create_srq(self, max_wr: int, max_sge: int = 1) -> Srq:
        """Make a shared receive queue for `max_wr` requests."""
        return Srq(self._adapter, self.pdn, max_wr, max_sge)

    def close(self) -> None:
        """Free the domain's number; everything in the domain must have been closed before."""
        self._adapter.commands.run(Opcode.DEALLOC_PD, number=self.pdn)


class Context(OpenPort):
    """An open adapter with its port; implements `guest.verbs.interface.Device`.

    Besides that interface it has `adapter`, the common parts of the device, and `async_events`
    (`AsyncEvent`s of the port, queue pairs and queues). `open_mlx5` makes one.
    """

    ethernet_port: Port

    def __init__(self, adapter: Adapter, port: Port, events: AsyncEventQueue) -> None:
        self.adapter = adapter
        super().__init__(adapter.bus, adapter.health, adapter.name)
        self.ethernet_port = port
        self.async_events = events
        self.channels: list[EventQueue[CompletionQueue]] = []
        self._opened = True

    def alloc_pd(self) -> Pd:
        """Make a protection domain."""
        return Pd(self.adapter, self.ethernet_port)

    def create_comp_channel(self) -> CompChannel:
        """Make a completion channel; raises `VerbsError` when no interrupt vector is left."""
        return CompChannel(self.adapter, self.channels)

    def create_cq(self, entries: int, channel: CompletionChannel | None = None) -> Cq:
        """Make a completion queue; `channel` is where its events go."""
        found = None if channel is None else own(CompChannel, channel)
        return Cq(self.adapter, entries, found, self.async_events.eqn)

    def query_device(self) -> DeviceAttr:
        """Return the device's limits and abilities out of its capabilities."""
        cap = self.adapter.capability
        changes_keys = not cap("umr_modify_entity_size_disabled")
        return DeviceAttr(
            name=self.name,
            fw_version=self.adapter.firmware,
            node_guid=self.ethernet_port.node_guid,
            max_qp_wr=1 << cap("log_max_qp_size"),
            max_cqe=(1 << (cap("log_max_cq_size") - 1)) - 1,
            max_sge=min(cap("max_wqe_sz_sq"), cap("max_wqe_sz_rq")) // 16 - 6,
            max_qp_rd_atomic=1 << cap("log_max_ra_res_qp"),
            max_msg=1 << cap("log_max_msg"),
            page_size_cap=_PAGE_SIZES,
            max_fast_reg_pages=MAX_FAST_REG_PAGES,
            local_inv=changes_keys,
            fast_reg=changes_keys,
            flags=0,
        )

    @property
    def local_dma_lkey(self) -> int:
        """The local key that reaches all DMA memory in every PD."""
        return self.adapter.local_dma_lkey

    def port(self, number: int) -> Context:
        """Return the device bound to port `number`; raises `VerbsError` for any but 1."""
        if number != self.ethernet_port.number:
            raise VerbsError(f"{self.name} has no port {number}, but 1")
        return self

    def close(self) -> None:
        """Close what is open, take the port down, tear down; a second call does nothing."""
        if not self._opened:
            return
        self._opened = False
        for qp in list(self.adapter.queue_pairs.values()):
            qp.destroy()
        for cq in list(self.adapter.completion_queues.values()):
            cq.destroy()
        self.ethernet_port.stop()
        for channel in list(self.channels):
            channel.close()
        self.async_events.close()
        self.adapter.stop()


def open_mlx5(
    bus: Bus,
    mac: bytes | None = None,
    vectors: int = DEFAULT_VECTORS,
    blueflame: BlueFlameUse | None = None,
    chance: Random | None = None,
) -> Context:
    """Take the ConnectX-5 behind `bus` over and bring it up with its port.

    `mac` replaces the burned-in address; `vectors` bounds the completion channels to one less;
    `blueflame` says how to send through BlueFlame, None not to, `chance` draws the low bytes of
    keys, by default the system's randomness. Raises `VerbsError`.
    """
    adapter = Adapter(bus, NAME, chance)
    adapter.start(vectors)
    if blueflame is not None:
        adapter.use_blueflame(blueflame)
    port = Port(adapter, mac)
    events = AsyncEventQueue(adapter, port.note_event)
    port.start()
    return Context(adapter, port, events)
