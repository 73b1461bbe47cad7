"""The interface of a client and of a server of RNBD, whoever plays them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.rtrs.kernel_side import KernelClient, KernelServer
from bluebridge.host_tools.rtrs.python_side import Given, PythonClient, PythonServer
from bluebridge.host_tools.rtrs.routes import Route
from bluebridge.host_tools.rtrs.tree import PathState

SESSION = "lab"


class Server(Protocol):
    """Exports a disk. Every method raises `LabError`."""

    def start(self, routes: Sequence[Route]) -> str:
        """Export a RAM disk at the targets of `routes`; the name by which clients map it."""

    def statistics(self) -> list[PathState]:
        """Return the statistics of each path of the session."""

    def stop(self) -> None:
        """Export nothing any more; for a session that the client has closed."""


class Client(Protocol):
    """Maps a disk. Every method raises `LabError`."""

    def map(self, disk: str, routes: Sequence[Route]) -> str:
        """Map `disk` over paths along `routes`; the block device that it becomes."""

    def statistics(self) -> list[PathState]:
        """Return the statistics of each path of the session."""

    def reconnect(self, route: Route) -> None:
        """Try now, rather than after the reconnect delay; it may fail in silence."""

    def disconnect(self, route: Route) -> None:
        """Give a path up until it is asked to reconnect."""

    def unmap(self) -> None:
        """Give the block device back, and close the session."""


def client_of(pair: Pair, back_end: str) -> Client:
    """The client in the first guest; `back_end` is that of its NTRDMA if there is a bridge."""
    if _side(pair.config, 0) == "kernel":
        return KernelClient(pair.a, SESSION)
    return PythonClient(pair.a, Given(pair.config, back_end), SESSION)


def server_of(pair: Pair, back_end: str) -> Server:
    """The server in the second guest, likewise."""
    if _side(pair.config, 1) == "kernel":
        return KernelServer(pair.b, SESSION)
    return PythonServer(pair.b, Given(pair.config, back_end), SESSION)


def _side(config: LabConfig, number: int) -> str:
    assert config.rtrs is not None, "the pair was not made ready for RTRS"
    return config.rtrs[number]
