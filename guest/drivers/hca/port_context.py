"""An open HCA bound to one of its ports: makes objects whose queue pairs are on that port."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP, BmmeFlag
from bluebridge.guest.drivers.bus.interface import DmaMemory
from bluebridge.guest.drivers.hca.pd import Pd
from bluebridge.guest.drivers.hca.ports import GID_BYTES, MAC_BYTES, Port
from bluebridge.guest.drivers.hca.posting.blueflame import BlueFlame
from bluebridge.guest.drivers.hca.queues.channel import CompChannel
from bluebridge.guest.drivers.hca.queues.cq import Cq
from bluebridge.guest.drivers.hca.queues.event_queues import AsyncEventQueue
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.drivers.hca.resources.memory_regions import MAX_FAST_REG_PAGES
from bluebridge.guest.verbs.errors import VerbsError
from bluebridge.guest.verbs.values import CompletionChannel, DeviceAttr, PortAttr, RoceAddress


class PortContext(ABC):
    """The base class of the contexts of an adapter's ports.

    Besides the interface of verbs it has `adapter`, the common parts of the device, and
    `async_events` (`AsyncEvent`s of ports, queue pairs and queues). A completion channel is an
    event queue of the device with an MSI-X vector of its own, whose eventfd is `fileno()`;
    `_channels` holds the open ones, which all ports share.
    """

    def __init__(
        self,
        adapter: Adapter,
        port: Port,
        async_events: AsyncEventQueue,
        blueflame: BlueFlame | None,
        node_guid: int,
        channels: list[CompChannel],
    ) -> None:
        self.adapter = adapter
        self.health = adapter.health
        self.name = adapter.name
        self.ethernet_port = port
        self.async_events = async_events
        self._blueflame = blueflame
        self._node_guid = node_guid
        self._channels = channels

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Allocate contiguous zeroed DMA memory; raises `MemoryError`."""
        return self.adapter.bus.allocate(length, align)

    def alloc_pd(self) -> Pd:
        """Make a protection domain."""
        return Pd(self.adapter, self.ethernet_port, self._blueflame)

    def create_comp_channel(self) -> CompChannel:
        """Make a completion channel; raises `VerbsError` when no interrupt vector is left."""
        channel = CompChannel(self.adapter, self.adapter.vectors.allocate())
        self._channels.append(channel)
        return channel

    def create_cq(self, entries: int, channel: CompletionChannel | None = None) -> Cq:
        """Make a completion queue; `channel` is where its events go."""
        if channel is not None and not isinstance(channel, CompChannel):
            raise VerbsError("the completion channel is not one of this device")
        return Cq(self.adapter, entries, channel, self.async_events.eqn)

    def query_device(self) -> DeviceAttr:
        """Return the device's limits and abilities out of the answer to QUERY_DEV_CAP."""
        cap, limits = self.adapter.capabilities, self.adapter.limits
        bmme = QUERY_DEV_CAP.get(cap, "bmme_flags")
        return DeviceAttr(
            name=self.name,
            fw_version=self.adapter.firmware.version,
            node_guid=self._node_guid,
            max_qp_wr=limits.qp_wqes,
            max_cqe=(1 << limits.log_cqes) - 1,
            max_sge=QUERY_DEV_CAP.get(cap, "max_sq_sge"),
            max_qp_rd_atomic=1 << QUERY_DEV_CAP.get(cap, "log_max_requester_depth"),
            max_msg=1 << QUERY_DEV_CAP.get(cap, "log_max_msg"),
            page_size_cap=(1 << 64) - (1 << QUERY_DEV_CAP.get(cap, "log_page_size")),
            max_fast_reg_pages=MAX_FAST_REG_PAGES,
            local_inv=bool(bmme & BmmeFlag.LOCAL_INV),
            fast_reg=bool(bmme & BmmeFlag.FAST_REG_WR),
            flags=QUERY_DEV_CAP.get(cap, "flags_hi") << 32 | QUERY_DEV_CAP.get(cap, "flags_lo"),
        )

    def query_port(self) -> PortAttr:
        """Return the present state of the port."""
        return self.ethernet_port.refresh()

    @property
    def local_dma_lkey(self) -> int | None:
        """The local key that reaches all DMA memory in every PD, None when there is none."""
        cap = self.adapter.capabilities
        if not QUERY_DEV_CAP.get(cap, "bmme_flags") & BmmeFlag.RESERVED_LKEY:
            return None
        return QUERY_DEV_CAP.get(cap, "reserved_lkey")

    @property
    def address(self) -> bytes:
        """The port's link-local GID (16 bytes), then its MAC address (6 bytes)."""
        return self.ethernet_port.gids[0] + self.ethernet_port.mac

    def address_vector(self, address: bytes) -> RoceAddress:
        """Return the way to the device with that `address`, from the link-local GID."""
        if len(address) != GID_BYTES + MAC_BYTES:
            raise VerbsError(f"{address.hex()} is not the address of a RoCE device")
        return RoceAddress(address[:GID_BYTES], address[GID_BYTES:])

    @abstractmethod
    def port(self, number: int) -> PortContext:
        """Return the HCA bound to port `number`, brought up if need be; raises `VerbsError`."""

    @abstractmethod
    def close(self) -> None:
        """Free what belongs to this port; a second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
