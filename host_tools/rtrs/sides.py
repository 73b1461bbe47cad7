"""The interfaces of a client and of a server of RNBD, and the choice of their implementation."""

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
    """A server of RNBD, which exports a disk. Every method raises `LabError`."""

    def start(self, routes: Sequence[Route]) -> str:
        """Export a disk at the targets of `routes`; return the name by which clients map it."""

    def statistics(self) -> list[PathState]:
        """Return the statistics of each path of the session."""

    def stop(self) -> None:
        """End the export of a session that the client has closed."""


class Client(Protocol):
    """A client of RNBD, which maps a disk. Every method raises `LabError`."""

    def map(self, disk: str, routes: Sequence[Route]) -> str:
        """Map `disk` over paths along `routes`; return the block device that it becomes."""

    def statistics(self) -> list[PathState]:
        """Return the statistics of each path of the session."""

    def reconnect(self, route: Route) -> None:
        """Reconnect a path now, without the reconnect delay; a failure is not reported."""

    def disconnect(self, route: Route) -> None:
        """Disconnect a path until it is asked to reconnect."""

    def unmap(self) -> None:
        """Unmap the block device, and close the session."""


def client_of(pair: Pair, back_end: str) -> Client:
    """Return the client in the first guest; `back_end` is that of NTRDMA if there is a bridge."""
    if _side(pair.config, 0) == "kernel":
        return KernelClient(pair.a, SESSION)
    return PythonClient(pair.a, Given(pair.config, back_end), SESSION)


def server_of(pair: Pair, back_end: str) -> Server:
    """Return the server in the second guest; `back_end` is that of NTRDMA if there is a bridge."""
    if _side(pair.config, 1) == "kernel":
        return KernelServer(pair.b, SESSION)
    return PythonServer(pair.b, Given(pair.config, back_end), SESSION)


def _side(config: LabConfig, number: int) -> str:
    assert config.rtrs is not None, "the pair was not made ready for RTRS"
    return config.rtrs[number]
