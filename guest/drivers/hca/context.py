"""The HCA as a device of verbs: bring-up and tear-down, its ports, its protection domains."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from bluebridge.device.layout.mlx4.capabilities import BmmeFlag
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.ports import CONFIG_DEV, CONFIG_DEV_ROCE_PORT
from bluebridge.device.layout.net.ip import ROCE_PORT
from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.drivers.common.blueflame import BlueFlameUse
from bluebridge.guest.drivers.common.context import Domain, OpenPort
from bluebridge.guest.drivers.common.event_queue import EventQueue
from bluebridge.guest.drivers.common.health import HcaError
from bluebridge.guest.drivers.common.qp_attributes import own
from bluebridge.guest.drivers.common.regions import MAX_FAST_REG_PAGES
from bluebridge.guest.drivers.common.vectors import DEFAULT_VECTORS
from bluebridge.guest.drivers.hca.ports import Port
from bluebridge.guest.drivers.hca.posting.blueflame import BlueFlame
from bluebridge.guest.drivers.hca.queues.cq import Cq
from bluebridge.guest.drivers.hca.queues.event_queues import AsyncEventQueue, CompChannel
from bluebridge.guest.drivers.hca.queues.qp import Qp
from bluebridge.guest.drivers.hca.queues.work_queues import Srq
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.drivers.hca.resources.icm import DEFAULT, Profile
from bluebridge.guest.drivers.hca.resources.memory_regions import DmaMr, FastRegMr, Mr
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.interface import EthernetPort
from bluebridge.guest.verbs.values import CompletionChannel, CompletionQueue, DeviceAttr, QpInit

NAME = "mlx4_0"
INTERRUPT_SECONDS = 10.0
_NOP_MODIFIER = 0x1F


class Pd(Domain):
    """A protection domain; `port` and `blueflame` are for its queue pairs."""

    def __init__(self, adapter: Adapter, port: EthernetPort, blueflame: BlueFlame | None) -> None:
        self._adapter = adapter
        self._port = port
        self._blueflame = blueflame
        self.pdn = adapter.numbers.protection_domains.allocate()

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

    def create_qp(self, init: QpInit) -> Qp:
        """Make a queue pair in state RESET."""
        return Qp(self._adapter, self.pdn, init, self._port, self._blueflame)

    def create_srq(self, max_wr: int, max_sge: int = 1) -> Srq:
        """Make a shared receive queue for `max_wr` requests."""
        return Srq(self._adapter, self.pdn, max_wr, max_sge)

    def close(self) -> None:
        """Free the domain's number; everything in the domain must have been closed before."""
        self._adapter.numbers.protection_domains.free(self.pdn)


class PortContext(OpenPort):
    """An open HCA bound to one of its ports; `Context.port` makes it.

    Besides the interface of verbs it has `adapter`, the common parts of the device, and
    `async_events` (`AsyncEvent`s of ports, queue pairs and queues).
    """

    ethernet_port: Port

    def __init__(
        self, device: Context, adapter: Adapter, port: Port, async_events: AsyncEventQueue
    ) -> None:
        self._device = device
        self.adapter = adapter
        super().__init__(adapter.bus, adapter.health, adapter.name)
        self.ethernet_port = port
        self.async_events = async_events

    def alloc_pd(self) -> Pd:
        """Make a protection domain."""
        return Pd(self.adapter, self.ethernet_port, self._device.blueflame)

    def create_comp_channel(self) -> CompChannel:
        """Make a completion channel; raises `VerbsError` when no interrupt vector is left."""
        return CompChannel(self.adapter, self._device.channels)

    def create_cq(self, entries: int, channel: CompletionChannel | None = None) -> Cq:
        """Make a completion queue; `channel` is where its events go."""
        found = None if channel is None else own(CompChannel, channel)
        return Cq(self.adapter, entries, found, self.async_events.eqn)

    def query_device(self) -> DeviceAttr:
        """Return the device's limits and abilities out of the answer to QUERY_DEV_CAP."""
        cap = self.adapter.capability
        bmme = cap("bmme_flags")
        return DeviceAttr(
            name=self.name,
            fw_version=self.adapter.firmware.version,
            node_guid=self._device.node_guid,
            max_qp_wr=1 << cap("log_max_qp_wqes"),
            max_cqe=(1 << (cap("log_max_cqes") - 1)) - 1,
            max_sge=cap("max_sq_sge"),
            max_qp_rd_atomic=1 << cap("log_max_responder_depth"),
            max_msg=1 << cap("log_max_msg"),
            page_size_cap=(1 << 64) - (1 << cap("log_page_size")),
            max_fast_reg_pages=MAX_FAST_REG_PAGES,
            local_inv=bool(bmme & BmmeFlag.LOCAL_INV),
            fast_reg=bool(bmme & BmmeFlag.FAST_REG_WR),
            flags=cap("flags_hi") << 32 | cap("flags_lo"),
        )

    @property
    def local_dma_lkey(self) -> int | None:
        """The local key that reaches all DMA memory in every PD, None when there is none."""
        if not self.adapter.capability("bmme_flags") & BmmeFlag.RESERVED_LKEY:
            return None
        return self.adapter.capability("reserved_lkey")

    def port(self, number: int) -> PortContext:
        """Return the HCA bound to port `number`, brought up if need be; raises `VerbsError`."""
        return self._device.port(number)

    def close(self) -> None:
        """Take the port down and destroy its queue pairs; a second call does nothing."""
        self._device.close_port(self.ethernet_port)


class Context(PortContext):
    """An open HCA bound to its first port; implements `guest.verbs.interface.Device`.

    `open_hca` makes one. All ports share its `channels` and `blueflame`.
    """

    def __init__(
        self,
        adapter: Adapter,
        ports: dict[int, Port],
        events: AsyncEventQueue,
        blueflame: BlueFlame | None,
    ) -> None:
        port = ports[1]
        super().__init__(self, adapter, port, events)
        self.blueflame = blueflame
        self.node_guid = int.from_bytes(port.mac[:3] + b"\xff\xfe" + port.mac[3:], "big")
        self.channels: list[EventQueue[CompletionQueue]] = []
        self._ports = ports
        self._others: dict[int, PortContext] = {}
        self.opened = True

    def port(self, number: int) -> PortContext:
        if number == 1:
            return self
        count = self.adapter.capability("num_ports")
        if not 1 <= number <= count:
            raise VerbsError(f"{self.name} has no port {number}, but 1 to {count}")
        if number not in self._others:
            port = Port(self.adapter.commands, None, number, self._ports[1].roce_v2)
            self._ports[number] = port
            port.start()
            self._others[number] = PortContext(self, self.adapter, port, self.async_events)
        return self._others[number]

    def close_port(self, port: Port) -> None:
        """Destroy the queue pairs of a port and take it down, unless that was done."""
        if self._ports.get(port.number) is not port:
            return
        for qp in list(self.adapter.queue_pairs.values()):
            if qp.port_number == port.number:
                qp.destroy()
        port.stop()
        del self._ports[port.number]
        self._others.pop(port.number, None)

    def close(self) -> None:
        """Tear down in the order of Linux's mlx4_unload_one; a second call does nothing.

        Queue pairs and queues that are still open are closed first.
        """
        if not self.opened:
            return
        self.opened = False
        for qp in list(self.adapter.queue_pairs.values()):
            qp.destroy()
        for cq in list(self.adapter.completion_queues.values()):
            cq.destroy()
        for port in sorted(self._ports.values(), key=lambda port: -port.number):
            self.close_port(port)
        self.adapter.commands.run(Opcode.CONF_SPECIAL_QP, 0)
        for channel in list(self.channels):
            channel.close()
        self.async_events.close()
        self.adapter.stop()


def open_hca(
    bus: Bus,
    mac: bytes | None = None,
    vectors: int = DEFAULT_VECTORS,
    blueflame: BlueFlameUse | None = None,
    profile: Profile = DEFAULT,
    chance: Random | None = None,
) -> Context:
    """Take the ConnectX-3 behind `bus` over and bring it up with its first port.

    `mac` replaces the burned-in address; `vectors` bounds the completion channels to one less;
    `blueflame` says how to send through BlueFlame, None not to; `profile` is how many objects there
    may be; `chance` draws the numbers of queue pairs and the keys, by default the system's
    randomness. The order is that of Linux's mlx4_load_one.
    Raises `VerbsError`.
    """
    adapter = Adapter(bus, NAME, profile, chance)
    how = None
    if blueflame is not None:
        how = BlueFlame(bus, adapter.capabilities, adapter.uar, blueflame)
    adapter.start(vectors)
    ports = {1: Port(adapter.commands, mac, roce_v2=_roce_v2(adapter))}
    events = AsyncEventQueue(adapter, lambda number, subtype: _note(ports, number, subtype))
    _check_interrupts(adapter, events)
    adapter.commands.run(Opcode.CONF_SPECIAL_QP, adapter.numbers.special_qps)
    ports[1].start()
    return Context(adapter, ports, events, how)


def _roce_v2(adapter: Adapter) -> bool:
    """Return whether the adapter speaks RoCE v2, after telling it the UDP port if so.

    core/main.c: mlx4_init_hca calls mlx4_config_roce_v2_port.
    """
    if not adapter.capability("bmme_flags") & BmmeFlag.ROCE_V1_V2:
        return False
    settings = CONFIG_DEV.pack(update_flags=CONFIG_DEV_ROCE_PORT, roce_port=ROCE_PORT)
    adapter.commands.run(Opcode.CONFIG_DEV, data=settings)
    return True


def _note(ports: dict[int, Port], number: int, subtype: int) -> None:
    """Tell a port that is up of its change; an event of another port is dropped."""
    port = ports.get(number)
    if port is not None:
        port.note_event(subtype)


def _check_interrupts(adapter: Adapter, events: AsyncEventQueue) -> None:
    """Require that a NOP in event mode comes back through vector 0, as Linux does."""
    token = 1
    adapter.commands.post_event(Opcode.NOP, _NOP_MODIFIER, token)
    status = events.wait_command(token, INTERRUPT_SECONDS)
    if status is None:
        raise HcaError("no interrupt came for the NOP command")
    if status:
        raise HcaError(f"the NOP command failed with status {status:#04x}")
