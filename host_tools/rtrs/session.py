"""Sessions in which a disk of the second guest is mapped in the first, and cuts of their routes."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bluebridge.device.server.options import ServerOptions
from bluebridge.guest.protocols.ntrdma.back_ends import BACK_END
from bluebridge.guest.providers import NTRDMA
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.config import PYTHON, LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.progress import Progress
from bluebridge.host_tools.rtrs.cuts import Cutter
from bluebridge.host_tools.rtrs.sides import (
    Client,
    KernelClient,
    KernelServer,
    PathState,
    PythonClient,
    PythonServer,
    Route,
    Server,
    interfaces,
    routes,
)

SESSION = "lab"


def client_of(pair: Pair, back_end: str) -> Client:
    """Return the client in the first guest; `back_end` is that of NTRDMA if there is a bridge."""
    if _side(pair.config, 0) == "kernel":
        return KernelClient(pair.a, SESSION)
    return PythonClient(pair.a, interfaces(pair.config, back_end, pair.a), SESSION)


def server_of(pair: Pair, back_end: str) -> Server:
    """Return the server in the second guest; `back_end` is that of NTRDMA if there is a bridge."""
    if _side(pair.config, 1) == "kernel":
        return KernelServer(pair.b, SESSION)
    return PythonServer(pair.b, interfaces(pair.config, back_end, pair.b), SESSION)


def _side(config: LabConfig, number: int) -> str:
    assert config.rtrs is not None, "the pair was not made ready for RTRS"
    return config.rtrs[number]


@dataclass(frozen=True)
class Mapped:
    """The session of a mapped device."""

    pair: Pair
    client: Client
    server: Server
    routes: list[Route]
    device: str
    """The device in the client's guest: `/dev/rnbd0`."""


def config(sides: tuple[str, str], hcas: int, log: Path | None = None) -> LabConfig:
    """Return a pair with two routes from client to server: over two ports, or over two HCAs."""
    options = ServerOptions(ports=1 if hcas > 1 else 2)
    return LabConfig(rtrs=sides, hcas=hcas, options=options, log=log)


def ntrdma_config(log: Path | None = None) -> LabConfig:
    """Return a pair with a route over NTRDMA and one over a port, for the guest's Python."""
    return LabConfig(rtrs=(PYTHON, PYTHON), bridge=ntrdma.bridge(), log=log)


@contextlib.contextmanager
def mapped(
    pair: Pair, chosen: list[Route] | None = None, back_end: str = BACK_END
) -> Iterator[Mapped]:
    """Map a disk over `chosen` routes, or all, for the length of the block. Raises `LabError`.

    `back_end` is that of NTRDMA, if there is a bridge.
    """
    ways = routes(pair.config) if chosen is None else chosen
    client, server = client_of(pair, back_end), server_of(pair, back_end)
    disk = server.start()
    device = client.map(disk, ways)
    try:
        yield Mapped(pair, client, server, ways, device)
    finally:
        client.unmap()
        server.stop()


@contextlib.contextmanager
def session(
    sides: tuple[str, str], options: argparse.Namespace, log: Path | None, progress: Progress
) -> Iterator[Mapped]:
    """Start a pair of guests and map a disk there, by `hcas`, `provider`, `backend` of `options`.

    Raises `LabError`.
    """
    over_hcas = options.provider != NTRDMA
    made = config(sides, options.hcas, log) if over_hcas else ntrdma_config(log)
    with Pair(made, progress) as pair, mapped(pair, back_end=options.backend) as found:
        yield found


_LOOK_SECONDS = 0.5


@dataclass
class Interruption:
    """A route that is cut `seconds` long, and looked after until `deadline` (monotonic).

    A route over NTRDMA is cut by the client's order to disconnect its path.
    """

    mapped: Mapped
    cutter: Cutter
    route: Route
    say: Progress

    def run(self, seconds: float, deadline: float) -> bool:
        """Cut the route for `seconds`; return whether its path was given up. Raises `LabError`."""
        begin = time.monotonic()
        self._cut()
        self.say(f"{self._what} is cut")
        try:
            given_up = self._lost_before(begin + seconds)
            if given_up:
                self.say(f"{self.route.name} is given up")
            time.sleep(max(0.0, begin + seconds - time.monotonic()))
        finally:
            self._restore()
        self.say(f"{self._what} is restored")
        self._come_back(deadline)
        return given_up

    @property
    def _what(self) -> str:
        return self.route.port or self.route.name

    def _cut(self) -> None:
        if self.route.port:
            self.cutter.cut(self.route.port)
        else:
            self.mapped.client.disconnect(self.route)

    def _restore(self) -> None:
        """A path that was disconnected waits for an order."""
        if self.route.port:
            self.cutter.restore(self.route.port)
        else:
            self.mapped.client.reconnect(self.route)

    def _come_back(self, deadline: float) -> None:
        """Ask for a reconnect until it succeeds: the server may still have the old path."""
        while not self._state().connected and time.monotonic() < deadline:
            self.mapped.client.reconnect(self.route)
            time.sleep(_LOOK_SECONDS)
        if self._state().connected:
            self.say(f"{self.route.name} is connected")

    def _lost_before(self, deadline: float) -> bool:
        while self._state().connected:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _state(self) -> PathState:
        states = {state.name: state for state in self.mapped.client.statistics()}
        return states.get(self.route.name, PathState(self.route.name))
