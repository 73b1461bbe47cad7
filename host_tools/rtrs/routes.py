"""The routes between client and server: over NTRDMA, and over each pair of HCA ports."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.host_tools.lab.config import NTRDMA_ADDRESSES, LabConfig
from bluebridge.host_tools.lab.guest_drivers import port_addresses, port_name


@dataclass(frozen=True)
class Route:
    """A route between two addresses that are connected, with the client's port."""

    source: str
    target: str
    port: str
    """The client's port as named in the control socket; empty for NTRDMA and for a NIC."""

    @property
    def name(self) -> str:
        """Return the kernel's name of a path over this route."""
        return f"ip:{self.source}@ip:{self.target}"

    @property
    def words(self) -> str:
        """The route's addresses without families, as command lines have them."""
        return f"{self.source}@{self.target}"


def routes(config: LabConfig) -> list[Route]:
    """Return the routes from client to server: over the bridge first, then over each port."""
    client, server = config.names
    pairs = zip(_ports(config, client), _ports(config, server), strict=not config.rxe)
    over_hcas = [Route(ip, target, port) for (ip, port), (target, _) in pairs]
    if config.bridge is None:
        return over_hcas
    source, target = (address.partition("/")[0] for address in NTRDMA_ADDRESSES)
    return [Route(source, target, ""), *over_hcas]


def _ports(config: LabConfig, guest: str) -> list[tuple[str, str]]:
    """Return the address and the name of each port of a guest; a NIC has no name."""
    if config.has_nic(guest):
        return [(config.address(guest).partition("/")[0], "")]
    return [(port.ip, port_name(guest, port)) for port in port_addresses(config, guest)]
