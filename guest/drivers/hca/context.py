"""The HCA as a device of verbs: the order of bring-up and tear-down, and its ports."""

from __future__ import annotations

from random import Random

from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP, BmmeFlag
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.ports import CONFIG_DEV, CONFIG_DEV_ROCE_PORT
from bluebridge.device.layout.net.ip import ROCE_PORT
from bluebridge.guest.drivers.bus.interface import Bus
from bluebridge.guest.drivers.hca.port_context import PortContext
from bluebridge.guest.drivers.hca.ports import Port
from bluebridge.guest.drivers.hca.posting.blueflame import BlueFlame, BlueFlameUse
from bluebridge.guest.drivers.hca.queues.event_queues import AsyncEventQueue
from bluebridge.guest.drivers.hca.resources.adapter import Adapter
from bluebridge.guest.drivers.hca.resources.errors import HcaError
from bluebridge.guest.drivers.hca.resources.profile import DEFAULT, Profile
from bluebridge.guest.drivers.hca.resources.vectors import DEFAULT_VECTORS
from bluebridge.guest.verbs.errors import VerbsError

NAME = "mlx4_0"
INTERRUPT_SECONDS = 10.0
_NOP_MODIFIER = 0x1F


class OtherPort(PortContext):
    """An open HCA bound to a port other than the first; `Context.port` makes it."""

    def __init__(self, device: Context, port: Port, blueflame: BlueFlame | None) -> None:
        events, channels = device.async_events, device.channels
        super().__init__(device.adapter, port, events, blueflame, device.node_guid, channels)
        self._device = device

    def port(self, number: int) -> PortContext:
        """Return the HCA bound to port `number`."""
        return self._device.port(number)

    def close(self) -> None:
        """Take the port down and destroy its queue pairs; a second call does nothing."""
        self._device.close_port(self.ethernet_port)


class Context(PortContext):
    """An open HCA bound to its first port; implements `guest.verbs.interface.Device`.

    `open_hca` makes one.
    """

    def __init__(
        self, adapter: Adapter, ports: dict[int, Port], events: AsyncEventQueue,
        blueflame: BlueFlame | None, mtu: int,
    ) -> None:  # fmt: skip
        port = ports[1]
        self.node_guid = int.from_bytes(port.mac[:3] + b"\xff\xfe" + port.mac[3:], "big")
        super().__init__(adapter, port, events, blueflame, self.node_guid, [])
        self.channels = self._channels
        self._mtu = mtu
        self._ports = ports
        self._others: dict[int, OtherPort] = {}
        self.opened = True

    def port(self, number: int) -> PortContext:
        if number == 1:
            return self
        count = QUERY_DEV_CAP.get(self.adapter.capabilities, "num_ports")
        if not 1 <= number <= count:
            raise VerbsError(f"{self.name} has no port {number}, but 1 to {count}")
        if number not in self._others:
            port = Port(self.adapter.commands, None, self._mtu, number, self._ports[1].roce_v2)
            self._ports[number] = port
            port.start()
            self._others[number] = OtherPort(self, port, self._blueflame)
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
        for channel in list(self._channels):
            channel.close()
        self.async_events.close()
        self.adapter.stop()


def open_hca(
    bus: Bus,
    mac: bytes | None = None,
    vectors: int = DEFAULT_VECTORS,
    mtu: int = 1500,
    blueflame: BlueFlameUse | None = None,
    profile: Profile = DEFAULT,
    chance: Random | None = None,
) -> Context:
    """Take the ConnectX-3 behind `bus` over and bring it up with its first port.

    `mac` replaces the burned-in address; `vectors` bounds the completion channels to one less;
    `mtu` is that of the Ethernet ports; `blueflame` says how to send through BlueFlame, None not
    to; `profile` is how many objects there may be; `chance` draws the numbers of queue pairs and
    the keys, by default the system's randomness. The order is that of Linux's mlx4_load_one.
    Raises `VerbsError`.
    """
    adapter = Adapter(bus, NAME, profile, chance)
    how = None
    if blueflame is not None:
        how = BlueFlame(bus, adapter.capabilities, adapter.uar, blueflame)
    adapter.start(vectors)
    ports = {1: Port(adapter.commands, mac, mtu, roce_v2=_roce_v2(adapter))}
    events = AsyncEventQueue(adapter, lambda number, subtype: _note(ports, number, subtype))
    _check_interrupts(adapter, events)
    adapter.commands.run(Opcode.CONF_SPECIAL_QP, adapter.numbers.special_qps)
    ports[1].start()
    return Context(adapter, ports, events, how, mtu)


def _roce_v2(adapter: Adapter) -> bool:
    """Return whether the adapter speaks RoCE v2, after telling it the UDP port if so.

    core/main.c: mlx4_init_hca calls mlx4_config_roce_v2_port.
    """
    flags = QUERY_DEV_CAP.get(adapter.capabilities, "bmme_flags")
    if not flags & BmmeFlag.ROCE_V1_V2:
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
