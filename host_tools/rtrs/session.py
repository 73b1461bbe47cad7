"""Sessions in which a disk of the second guest is mapped in the first, and cuts of their routes."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from bluebridge.device import cards
from bluebridge.device.server.options import DEFAULTS, ServerOptions
from bluebridge.guest.ntrdma.back_ends import BACK_END
from bluebridge.guest.providers import NTRDMA
from bluebridge.host_tools.errors import Progress, UsageError
from bluebridge.host_tools.lab import lab_options, ntrdma
from bluebridge.host_tools.lab.config import PYTHON, LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.rtrs.sides import (
    Client,
    HostServer,
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

Tell = Callable[[str], list[str]]
"""Has the device server carry out a line of its control socket; returns the answer's lines."""

SESSION = "lab"

_LOOK_SECONDS = 0.5


class Cut(StrEnum):
    """A way to cut a path."""

    SILENT = "silent"
    """All messages are dropped in both directions; the link stays up."""
    LOUD = "loud"
    """The cable is disconnected: both ends see their link go down."""


_LINES = {
    Cut.SILENT: ("drop {port}", "remove {port}"),
    Cut.LOUD: ("link {port} down", "link {port} up"),
}


class Cutter:
    """Cuts the links of ports, which have their names in the control socket (`a/2`)."""

    def __init__(self, tell: Tell, how: Cut) -> None:
        self._tell = tell
        self._cut, self._restore = _LINES[how]

    def cut(self, port: str) -> None:
        """Cut the port's link, so that nothing passes it. Raises `LabError`."""
        self._tell(self._cut.format(port=port))

    def restore(self, port: str) -> None:
        """Restore the port's link, so that everything passes it. Raises `LabError`."""
        self._tell(self._restore.format(port=port))


def client_of(pair: Pair, back_end: str) -> Client:
    """Return the client in the first guest; `back_end` is that of NTRDMA if there is a bridge."""
    if pair.config.kernel_drives(pair.a.name):
        return KernelClient(pair.a, SESSION)
    return PythonClient(pair.a, interfaces(pair.config, back_end, pair.a), SESSION)


def server_of(pair: Pair, back_end: str) -> Server:
    """Return the server of the second side; `back_end` is that of NTRDMA if there is a bridge."""
    if (host := pair.hosts.get(pair.config.names[1])) is not None:
        return HostServer(host, interfaces(pair.config, back_end, host))
    if pair.config.kernel_drives(pair.b.name):
        return KernelServer(pair.b, SESSION)
    return PythonServer(pair.b, interfaces(pair.config, back_end, pair.b), SESSION)


@dataclass(frozen=True)
class Mapped:
    """The session of a mapped device."""

    pair: Pair
    client: Client
    server: Server
    routes: list[Route]
    device: str
    """The device in the client's guest: `/dev/rnbd0`."""


def config(
    sides: tuple[str, str], hcas: int, log: Path | None = None, adapters: ServerOptions = DEFAULTS
) -> LabConfig:
    """Return a pair with two routes from client to server: over two ports, or over two HCAs.

    Raises `UsageError` for adapters of one port.
    """
    if hcas == 1 and cards.CONNECTX5 in adapters.cards:
        raise UsageError("two paths need two ports, a ConnectX-5 has one", "add --hcas 2")
    options = replace(adapters, ports=1 if hcas > 1 else 2)
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
    sides: tuple[str, str],
    options: argparse.Namespace,
    log: Path | None,
    progress: Progress,
    hosts: str = "",
) -> Iterator[Mapped]:
    """Start a pair and map a disk in guest a, by `hcas`, `provider`, `backend` of `options`.

    The second side may be a host. Raises `LabError`.
    """
    over_hcas = options.provider != NTRDMA
    if over_hcas:
        made = config(sides, options.hcas, log, lab_options.cards_of(options))
    else:
        made = ntrdma_config(log)
    with (
        Pair(replace(made, hosts=hosts), progress) as pair,
        mapped(pair, back_end=options.backend) as found,
    ):
        yield found


def interrupt(
    mapped: Mapped, cutter: Cutter, route: Route, seconds: float, deadline: float, say: Progress
) -> bool:
    """Cut a route for `seconds`; return whether its path was given up. Raises `LabError`.

    A route over NTRDMA is cut by the client's order to disconnect its path. The path is looked
    after until `deadline` (monotonic): it is asked to reconnect until that succeeds, since the
    server may still have the old path.
    """

    def connected() -> bool:
        states = {state.name: state for state in mapped.client.statistics()}
        return states.get(route.name, PathState(route.name)).connected

    end = time.monotonic() + seconds
    if route.port:
        cutter.cut(route.port)
    else:
        mapped.client.disconnect(route)
    say(f"{route.port or route.name} is cut")
    try:
        while (held := connected()) and time.monotonic() <= end:
            time.sleep(_LOOK_SECONDS)
        if not held:
            say(f"{route.name} is given up")
        time.sleep(max(0.0, end - time.monotonic()))
    finally:
        if route.port:
            cutter.restore(route.port)
        else:  # a path that was disconnected waits for an order
            mapped.client.reconnect(route)
    say(f"{route.port or route.name} is restored")
    while not connected() and time.monotonic() < deadline:
        mapped.client.reconnect(route)
        time.sleep(_LOOK_SECONDS)
    if connected():
        say(f"{route.name} is connected")
    return not held
