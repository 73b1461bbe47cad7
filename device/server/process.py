"""The device server: HCAs and bridges on vfio-user sockets, one loop, one bus log."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.capture import CapturedFabric
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.ntb.shape import TRAINING_SECONDS
from bluebridge.device.pci.endpoint import Endpoint
from bluebridge.device.pci.function import Function
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.pyvfio_user import interrupter
from bluebridge.device.rdma.connected.packet_wire import PacketWire
from bluebridge.device.server.adapters import MAKINGS, Adapter
from bluebridge.device.server.bridges import Bridges, Hosts
from bluebridge.device.server.control import ControlCommands, ControlSocket
from bluebridge.device.server.networks import NAME, Networks, log_name
from bluebridge.device.server.nic import Nic
from bluebridge.device.server.options import ServerOptions, between_hosts, hosts
from bluebridge.device.server.settings import HcaSpec, ServerSettings
from bluebridge.device.server.show_control import ShowCommands
from bluebridge.device.server.stats import Stats
from bluebridge.device.server.underlay import Underlay
from bluebridge.device.show import Tables, kept
from bluebridge.device.underlay.tunnel import Tunnel

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.05
"""Seconds from the first noted event until it and all later ones are written."""


class Server:
    """The devices of one process, and a socket for orders if wanted.

    The link of a bridge trains for `training` seconds. Raises OSError when a socket cannot be
    served, ValueError when a network has no room.
    """

    def __init__(
        self, settings: ServerSettings, events: EventLog, training: float = TRAINING_SECONDS
    ) -> None:
        self.loop = EventLoop()
        self._events = events
        self._features, self._network = settings.features, settings.network
        links = [(spec.link, spec.network) for spec in settings.hcas]
        if self._network.packets and any(link is not LinkLayer.ETHERNET for link, _ in links):
            raise ValueError("a wire of packets (--wire packets) needs ports on Ethernet")
        self._networks = Networks(links, self._features.ports, self.loop.call_later, self._network)
        self._networks.decorate_switches(self._captured)
        self._open = ExitStack()
        """What is to be closed, the newest first."""
        self._open.callback(self.loop.close)
        self._open.callback(events.close)
        self._hcas: dict[str, Adapter] = {}
        self._functions: dict[str, Tables] = {}
        self._remains: dict[str, Tables] = {}
        self._faults = FaultRules(self.loop.call_later, events)
        self._trespassed: dict[str, Callable[[], tuple[int, int]]] = {}
        self._packet_wires: list[PacketWire] = []
        self._wires: list[Callable[[], list[str]]] = []
        """What tells of hosts on the other side of the wire, and of NICs, in lines."""
        self._nics: dict[str, Nic] = {}
        joined = settings.bridges or settings.engines
        self._hosts = Hosts() if joined else None
        self._bridges: Bridges | None = None
        try:
            if self._hosts is not None:
                self._bridges = Bridges(settings, self._hosts, self.loop, events, training)
                self._open.callback(self._bridges.close)
                for endpoint in self._bridges.endpoints:
                    self._show(endpoint, self._bridges.tables[endpoint.name])
            for spec in settings.hcas:
                self._add(spec)
            if between_hosts(settings.options.wire):
                self._join(settings.options)
            for nic in settings.nics:
                self._add_nic(nic)
            if settings.control is not None:
                self._open.callback(self._control_socket(settings.control).close)
        except BaseException:
            self.close()
            raise

    def _add(self, spec: HcaSpec) -> None:
        making = MAKINGS[spec.card]
        look = making.shape(spec, self._features)
        self._events.device(spec.name, spec.card)
        shape = (spec.name, spec.socket, look.identity, look.bars, look.chain, look.vectors)
        endpoint = (
            Endpoint(*shape, self.loop, self._events, look.product)
            if self._hosts is None
            else Function(
                *shape, self.loop, self._events, self._hosts[spec.name], product=look.product
            )
        )
        self._open.callback(endpoint.close)
        networks = self._networks.of(spec.link, spec.network)
        cables = self._cables(spec, networks)
        hca = making.make(spec, self._features, self._network, endpoint, cables)
        for offset, word in making.words(hca).items():
            endpoint.add_live_word(offset, word)
        self._hcas[spec.name] = hca
        for fabric, cable, port in zip(networks, cables, hca.ports, strict=False):
            device = log_name(spec.name, port.number)
            link = f"{spec.name}/{port.number}"
            end = cable if isinstance(cable, PacketWire) else port
            self._faults.add_link(link, device, end, fabric)
            self._trespassed[link] = partial(fabric.trespasses, end)
            if isinstance(cable, PacketWire):
                self._wires.append(partial(_overrun, link, cable))
        endpoint.plug(hca)
        self._show(endpoint, making.tables(hca, endpoint))

    def _join(self, options: ServerOptions) -> None:
        """Put other hosts on the network of the first ports."""
        network = self._networks.of(LinkLayer.ETHERNET)[0]
        there = hosts(options.wire, options.underlay)
        tunnel, cable = Tunnel(options.vni, there.peers), self._captured(network, NAME)
        underlay = Underlay(there.own, tunnel, network, cable, self.loop)
        self._open.callback(underlay.close)
        self._wires.append(underlay.report)

    def _add_nic(self, spec: HcaSpec) -> None:
        """Put the NIC of a guest on the network of the first ports."""
        network = self._networks.of(LinkLayer.ETHERNET)[0]
        nic = self._nics[spec.name] = Nic(
            spec, network, self._captured(network, spec.name), self.loop
        )
        self._open.callback(nic.close)
        self._wires.append(lambda: [nic.report()])
        self._faults.add_link(f"{spec.name}/1", spec.name, nic, network)

    def _captured(self, network: LocalFabric, name: str) -> Fabric:
        return CapturedFabric(network, self._events, name) if self._events.active else network

    def _show(self, endpoint: Endpoint, tables: Tables) -> None:
        """Make the state of a function available to `show`; keep it when its client is lost."""
        name = endpoint.name
        self._functions[name] = tables
        endpoint.when_lost(lambda: self._remains.update({name: kept(tables)}))

    def _control_socket(self, path: Path) -> ControlSocket:
        show = ShowCommands(self._functions, self._hcas, self._remains)
        commands = ControlCommands(
            self._hcas, self._faults, self._trespassed, self._events, show,
            lambda: [line for report in self._wires for line in report()],
            {} if self._bridges is None else self._bridges.by_guest(self._hcas),
            self._nics,
            Stats(self.loop, self._networks.all(), self._hcas, self._faults).lines,
        )  # fmt: skip
        return ControlSocket(path, commands, self.loop)

    def _cables(self, spec: HcaSpec, networks: Sequence[LocalFabric]) -> list[Fabric]:
        """Return the fabrics of the ports of an HCA, which with a log are captured."""
        cables = [
            self._captured(fabric, log_name(spec.name, port))
            for port, fabric in enumerate(networks, 1)
        ]
        if not self._network.packets:
            return cables
        return [PacketWire(cable, self.loop.call_soon, self._packet_wires) for cable in cables]

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        self.loop.stop_on(signal.SIGTERM, signal.SIGINT)
        interrupter.enable()
        self._events.when_noted(self._flush_soon)
        self._events.write_behind()
        print("ready", flush=True)
        self.loop.run()

    def _flush_soon(self) -> None:
        self.loop.call_later(FLUSH_SECONDS, self._events.hand_over)

    def close(self) -> None:
        """Close the sockets and the log."""
        self._open.close()
        sys.stdout.flush()


def _overrun(link: str, wire: PacketWire) -> list[str]:
    """Return a line on the packets that a port had no room for, if there are any."""
    return [f"{link}: no room for {wire.overrun} packets"] if wire.overrun else []
