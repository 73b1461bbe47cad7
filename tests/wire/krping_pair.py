"""krping on an HCA of the device server, without a guest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bluebridge.guest.protocols.krping.host import host_of, open_hca
from bluebridge.guest.protocols.krping.progress import Log
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.verbs.krping_contract import Output, Side


@contextmanager
def opened(socket: Path, ip: str, *, debugging: bool = False) -> Iterator[Side]:
    """One HCA with its host."""
    output = Output()
    bus = SocketBus(socket)
    try:
        host = host_of(open_hca(bus), ip, Log(output, debugging=debugging))
        try:
            yield Side(host, output)
        finally:
            host.close()
    finally:
        bus.close()
