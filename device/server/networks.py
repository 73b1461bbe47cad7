"""The networks of a server, one per port for each link layer and number."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Fabric, Later
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.settings import MESSAGES, NetworkSettings
from bluebridge.device.fabric.subnet.fabric import SWITCH_GUID, InfinibandFabric
from bluebridge.device.fabric.subnet.manager import SubnetManager, TrapSender
from bluebridge.device.pci.loop import EventLoop, LoopTimer

REST_SECONDS = 1.0
"""Pause in seconds before a connection is taken that cannot be taken now."""

NAME = "underlay"
"""The name in the log of what came from other hosts."""


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

    `later` calls an action after so many seconds.
    """

    def __init__(
        self,
        links: Iterable[tuple[LinkLayer, int]],
        ports: int,
        later: Later,
        settings: NetworkSettings = MESSAGES,
    ) -> None:
        self._networks = {
            (link, number): [
                _network(link, number * ports + port, later, settings) for port in range(ports)
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

    def all(self) -> list[LocalFabric]:
        """Return all networks."""
        return [network for networks in self._networks.values() for network in networks]

    def of(self, link: LinkLayer, number: int = 0) -> list[LocalFabric]:
        """Return the networks that ports 1, 2… of an adapter with this link and number are on."""
        return self._networks[link, number]


def _network(link: LinkLayer, number: int, later: Later, settings: NetworkSettings) -> LocalFabric:
    if link is LinkLayer.ETHERNET:
        return LocalFabric(trusting=settings.trusting)
    fabric = InfinibandFabric(SWITCH_GUID + number)
    if settings.managed:
        SubnetManager(fabric, later)
    else:
        TrapSender(fabric, later)
    return fabric
