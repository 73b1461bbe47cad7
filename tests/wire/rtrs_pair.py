"""RTRS between HCAs of the device server, without guests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings, ServerSettings
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interfaces
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import Device
from bluebridge.host_tools.vfio_user.bus import WireBus
from tests.models.verbs.rtrs_pair import RtrsPair, interfaces_on, rtrs_pair


@contextmanager
def pair_on_hcas(
    server_on: dict[str, Path],
    client_on: dict[str, Path],
    client_settings: ClientSettings,
    server_settings: ServerSettings,
) -> Iterator[RtrsPair]:
    """Both sides, with the socket of an HCA for each of their addresses."""
    with ExitStack() as stack:
        server, client = (hca_interfaces(stack, sockets) for sockets in (server_on, client_on))
        yield stack.enter_context(rtrs_pair(server, client, client_settings, server_settings))


def hca_interfaces(stack: ExitStack, sockets: dict[str, Path]) -> Interfaces:
    """An HCA for each address; `stack` closes them."""
    return interfaces_on(stack, {ip: _opened(stack, path) for ip, path in sockets.items()})


def _opened(stack: ExitStack, socket: Path) -> Device:
    bus = WireBus(socket)
    stack.callback(bus.close)
    return stack.enter_context(open_device(bus, vectors=16))
