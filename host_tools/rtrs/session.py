"""A disk of the second guest, mapped in the first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bluebridge.device.options import ServerOptions
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.progress import Progress
from bluebridge.host_tools.rtrs.routes import Route, routes
from bluebridge.host_tools.rtrs.sides import Client, Server, client_of, server_of


@dataclass(frozen=True)
class Mapped:
    """The session of a mapped device."""

    pair: Pair
    client: Client
    server: Server
    routes: list[Route]
    device: str
    """In the client's guest: `/dev/rnbd0`."""


def config(sides: tuple[str, str], hcas: int, log: Path | None = None) -> LabConfig:
    """A pair with two routes from client to server: over two ports, or over two HCAs."""
    options = ServerOptions(ports=1 if hcas > 1 else 2)
    return LabConfig(rtrs=sides, hcas=hcas, options=options, log=log)


@contextlib.contextmanager
def mapped(pair: Pair, chosen: list[Route] | None = None) -> Iterator[Mapped]:
    """Export and map over `chosen` routes, or all; unmap at the end. Raises `LabError`."""
    ways = routes(pair.config) if chosen is None else chosen
    client, server = client_of(pair), server_of(pair)
    disk = server.start(ways)
    device = client.map(disk, ways)
    try:
        yield Mapped(pair, client, server, ways, device)
    finally:
        client.unmap()
        server.stop()


@contextlib.contextmanager
def session(
    sides: tuple[str, str], hcas: int, log: Path | None, progress: Progress
) -> Iterator[Mapped]:
    """The same between two guests of its own."""
    with Pair(config(sides, hcas, log), progress) as pair, mapped(pair) as found:
        yield found
