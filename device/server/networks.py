"""The networks of a server, one per port for each link layer and number; what other hosts are."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Fabric, Later
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.subnet.fabric import SWITCH_GUID, InfinibandFabric
from bluebridge.device.fabric.subnet.manager import SubnetManager, TrapSender
from bluebridge.device.pci.loop import EventLoop, LoopTimer
from bluebridge.device.server.options import Hosts

REST_SECONDS = 1.0
"""Pause in seconds before a connection is taken that cannot be taken now."""

NAME = "underlay"
"""The name in the log of what came from other hosts."""


@dataclass(frozen=True, slots=True)
class HcaSpec:
    """An HCA to serve: its name in the log, its socket, its MAC address, its link layer.

    Its ports are on the networks of number `network`: ports of the same number are connected if
    their adapters have the same network number. A NIC is named likewise.
    """

    name: str
    socket: Path
    mac: bytes
    link: LinkLayer = LinkLayer.ETHERNET
    network: int = 0


def log_name(name: str, port: int) -> str:
    """Return the name of a port of an HCA or switch in the bus log: `a`, `a/2`."""
    return name if port == 1 else f"{name}/{port}"


class Listener:
    """A UNIX socket that gives its connections to `take`, for `what` by its errors (`OSError`).

    While there is no descriptor for one, or `take` is not `ready` for it, it rests: the client
    waits, and the socket stays readable.
    """

    def __init__(
        self,
        what: str,
        path: Path,
        loop: EventLoop,
        take: Callable[[socket.socket], None],
        backlog: int,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._path = path
        self._loop = loop
        self._take = take
        self._ready = ready
        self._resting: LoopTimer | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        before = os.umask(0o177)  # never open to others, not even between bind and a chmod
        try:
            self._socket.bind(str(path))
            self._socket.listen(backlog)
        except OSError as error:
            self._socket.close()
            raise OSError(error.errno, f"{what} socket {path}: {error.strerror}") from None
        finally:
            os.umask(before)
        self._listen()

    def _listen(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            client = self._socket.accept()[0] if self._ready() else None
        except BlockingIOError:
            return
        except OSError:
            client = None
        if client is None:
            self._loop.remove_reader(self._socket.fileno())
            self._resting = self._loop.call_later(REST_SECONDS, self._listen)
        else:
            client.setblocking(False)
            self._take(client)

    def close(self) -> None:
        """End listening and remove the socket."""
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._path.unlink(missing_ok=True)


class Networks:
    """The networks of `ports` ports for adapters with `links`: link layer and network number.

    `managed` says whether the switch of an InfiniBand network has a subnet manager; otherwise
    software in a guest has to be one, and the switch sends it traps. `later` calls an action after
    so many seconds. A `trusting` network lets ports use each other's addresses.
    """

    def __init__(
        self,
        links: Iterable[tuple[LinkLayer, int]],
        ports: int,
        later: Later,
        *,
        managed: bool,
        trusting: bool = False,
    ) -> None:
        self._networks = {
            (link, number): [
                _network(link, number * ports + port, later, managed, trusting)
                for port in range(ports)
            ]
            for link, number in sorted(set(links))
        }

    def decorate_switches(self, wrap: Callable[[LocalFabric, str], Fabric]) -> None:
        """Let the switch of each network send through `wrap(network, name of the switch)`."""
        for (_, number), networks in self._networks.items():
            for port, network in enumerate(networks, 1):
                if isinstance(network, InfinibandFabric):
                    name = log_name(f"switch.{number}" if number else "switch", port)
                    network.switch.send_through(wrap(network, name))

    def of(self, link: LinkLayer, number: int = 0) -> list[LocalFabric]:
        """Return the networks that ports 1, 2… of an adapter with this link and number are on."""
        return self._networks[link, number]


def _network(
    link: LinkLayer, number: int, later: Later, managed: bool, trusting: bool
) -> LocalFabric:
    if link is LinkLayer.ETHERNET:
        return LocalFabric(trusting=trusting)
    fabric = InfinibandFabric(SWITCH_GUID + number)
    if managed:
        SubnetManager(fabric, later)
    else:
        TrapSender(fabric, later)
    return fabric


@dataclass(frozen=True, slots=True)
class UnderlaySpec:
    """The hosts to join, and the number of the VXLAN network."""

    hosts: Hosts
    vni: int
