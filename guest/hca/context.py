"""The HCA as a device of verbs: what makes its objects, and the order of bring-up and tear-down."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP, BmmeFlag
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.guest.bus.interface import Bus, DmaMemory
from bluebridge.guest.hca.pd import Pd
from bluebridge.guest.hca.ports import GID_BYTES, MAC_BYTES, Port
from bluebridge.guest.hca.posting.blueflame import BlueFlame, BlueFlameUse
from bluebridge.guest.hca.queues.channel import CompChannel
from bluebridge.guest.hca.queues.cq import Cq
from bluebridge.guest.hca.queues.event_queues import AsyncEventQueue
from bluebridge.guest.hca.resources.adapter import Adapter
from bluebridge.guest.hca.resources.errors import HcaError
from bluebridge.guest.hca.resources.memory_regions import MAX_FAST_REG_PAGES
from bluebridge.guest.hca.resources.profile import DEFAULT, Profile
from bluebridge.guest.hca.resources.vectors import DEFAULT_VECTORS
from bluebridge.guest.verbs.errors import VerbsError
from bluebridge.guest.verbs.objects import CompletionChannel
from bluebridge.guest.verbs.roce import RoceAddress
from bluebridge.guest.verbs.values import DeviceAttr, PortAttr

NAME = "mlx4_0"
INTERRUPT_SECONDS = 10.0
_NOP_MODIFIER = 0x1F


class Context:
    """An open HCA, the first provider of `guest.verbs.interface.Device`; `open_hca` makes one.

    Besides the interface: `adapter` below it, and `async_events` (`AsyncEvent`s of port, queue
    pairs and queues). A completion channel is an event queue of the device with an MSI-X vector of
    its own, whose eventfd is `fileno()`.
    """

    def __init__(
        self,
        adapter: Adapter,
        port: Port,
        async_events: AsyncEventQueue,
        blueflame: BlueFlame | None,
    ) -> None:
        self.adapter = adapter
        self.health = adapter.health
        self.name = adapter.name
        self.ethernet_port = port
        self.async_events = async_events
        self._blueflame = blueflame
        self._channels: list[CompChannel] = []
        self._open = True

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Contiguous zeroed DMA memory; raises `MemoryError`."""
        return self.adapter.bus.allocate(length, align)

    def alloc_pd(self) -> Pd:
        """A protection domain."""
        return Pd(self.adapter, self.ethernet_port, self._blueflame)

    def create_comp_channel(self) -> CompChannel:
        """A completion channel; raises `VerbsError` when no interrupt vector is left."""
        channel = CompChannel(self.adapter, self.adapter.vectors.allocate())
        self._channels.append(channel)
        return channel

    def create_cq(self, entries: int, channel: CompletionChannel | None = None) -> Cq:
        """A completion queue; `channel` is where its events go."""
        if channel is not None and not isinstance(channel, CompChannel):
            raise VerbsError("the completion channel is not one of this device")
        return Cq(self.adapter, entries, channel, self.async_events.eqn)

    def query_device(self) -> DeviceAttr:
        """What the device can do."""
        cap, limits = self.adapter.capabilities, self.adapter.limits
        bmme = QUERY_DEV_CAP.get(cap, "bmme_flags")
        mac = self.ethernet_port.mac
        return DeviceAttr(
            name=self.name,
            fw_version=self.adapter.firmware.version,
            node_guid=int.from_bytes(mac[:3] + b"\xff\xfe" + mac[3:], "big"),
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
        """The port's state now."""
        return self.ethernet_port.refresh()

    @property
    def local_dma_lkey(self) -> int | None:
        """The key for local use that reaches all DMA memory, in every PD; None: there is none."""
        cap = self.adapter.capabilities
        if not QUERY_DEV_CAP.get(cap, "bmme_flags") & BmmeFlag.RESERVED_LKEY:
            return None
        return QUERY_DEV_CAP.get(cap, "reserved_lkey")

    @property
    def address(self) -> bytes:
        """The link-local GID and the MAC address, 22 bytes."""
        return self.ethernet_port.gids[0] + self.ethernet_port.mac

    def address_vector(self, address: bytes) -> RoceAddress:
        """The way to the device with that `address`, from the link-local GID."""
        if len(address) != GID_BYTES + MAC_BYTES:
            raise VerbsError(f"{address.hex()} is not the address of a RoCE device")
        return RoceAddress(address[:GID_BYTES], address[GID_BYTES:])

    def close(self) -> None:
        """Tear down in the order of Linux's mlx4_unload_one; a second call does nothing.

        Queue pairs and queues that are still open are closed first.
        """
        if not self._open:
            return
        self._open = False
        for qp in list(self.adapter.queue_pairs.values()):
            qp.destroy()
        for cq in list(self.adapter.completion_queues.values()):
            cq.destroy()
        self.ethernet_port.stop()
        self.adapter.commands.run(Opcode.CONF_SPECIAL_QP, 0)
        for channel in list(self._channels):
            channel.close()
        self.async_events.close()
        self.adapter.stop()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def open_hca(
    bus: Bus,
    mac: bytes | None = None,
    vectors: int = DEFAULT_VECTORS,
    mtu: int = 1500,
    blueflame: BlueFlameUse | None = None,
    profile: Profile = DEFAULT,
) -> Context:
    """Take the ConnectX-3 behind `bus` over and bring it up with its port.

    `mac` replaces the burned-in address; `vectors` bounds the completion channels to one less;
    `mtu` is that of the Ethernet port; `blueflame` says how to send through BlueFlame, None not to;
    `profile` is how many objects there may be. The order is that of Linux's mlx4_load_one.
    Raises `VerbsError`.
    """
    adapter = Adapter(bus, NAME, profile)
    how = None
    if blueflame is not None:
        how = BlueFlame(bus, adapter.capabilities, adapter.uar, blueflame)
    adapter.start(vectors)
    port = Port(adapter.commands, mac, mtu)
    events = AsyncEventQueue(adapter, port.note_event)
    _check_interrupts(adapter, events)
    adapter.commands.run(Opcode.CONF_SPECIAL_QP, adapter.numbers.special_qps)
    port.start()
    return Context(adapter, port, events, how)


def _check_interrupts(adapter: Adapter, events: AsyncEventQueue) -> None:
    """A NOP in event mode must come back through vector 0, as Linux demands."""
    token = 1
    adapter.commands.post_event(Opcode.NOP, _NOP_MODIFIER, token)
    status = events.wait_command(token, INTERRUPT_SECONDS)
    if status is None:
        raise HcaError("no interrupt came for the NOP command")
    if status:
        raise HcaError(f"the NOP command failed with status {status:#04x}")
