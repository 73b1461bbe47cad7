"""The underlay of a server: the port of its first network at which other hosts are."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.fabric.interface import Fabric, StagedFabric
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.server.wire_peers import Hosts
from bluebridge.device.underlay.bursts import BurstSocket
from bluebridge.device.underlay.port import UnderlayPort
from bluebridge.device.underlay.tunnel import Tunnel

NAME = "underlay"
"""The name in the log of what came from other hosts."""


@dataclass(frozen=True, slots=True)
class UnderlaySpec:
    """The hosts to join, and the number of the VXLAN network."""

    hosts: Hosts
    vni: int


class Underlay:
    """The port of `network` at which other hosts are, behind the decorators of `cable`.

    Raises `OSError` when its address is taken.
    """

    def __init__(
        self, spec: UnderlaySpec, network: StagedFabric, cable: Fabric, loop: EventLoop
    ) -> None:
        own = spec.hosts.own
        try:
            self._socket = BurstSocket(own)
        except OSError as error:
            raise OSError(
                error.errno, f"underlay {own}: {error.strerror}; name another with --underlay"
            ) from None
        self.port = own.port
        tunnel = Tunnel(spec.vni, spec.hosts.peers)
        self._loop = loop
        self._network = network
        self._port = UnderlayPort(cable, tunnel, self._socket, loop.call_soon, loop.call_later)
        loop.add_reader(self._socket.fileno(), self._port.receive_all)

    def report(self) -> list[str]:
        """Return a line for each host, and one for what was refused."""
        spoofed, _ = self._network.trespasses(self._port)
        own = [f"dropped from addresses of this lab: {spoofed}"] if spoofed else []
        return [*self._port.report(), *own]

    def close(self) -> None:
        """Leave the network and close the socket."""
        self._loop.remove_reader(self._socket.fileno())
        self._port.close()
