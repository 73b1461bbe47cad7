"""The routes between client and server: over NTRDMA, and over each pair of HCA ports."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.host_tools.lab.config import NTRDMA_ADDRESSES, LabConfig
from bluebridge.host_tools.lab.hca_addresses import port_addresses, port_name


@dataclass(frozen=True)
class Route:
    """A route between two addresses that are connected, with the client's port."""

    source: str
    target: str
    port: str
    """The client's port as named in the control socket; empty for NTRDMA."""

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
    pairs = zip(port_addresses(config, client), port_addresses(config, server), strict=True)
    over_hcas = [Route(ours.ip, theirs.ip, port_name(client, ours)) for ours, theirs in pairs]
    if config.bridge is None:
        return over_hcas
    source, target = (address.partition("/")[0] for address in NTRDMA_ADDRESSES)
    return [Route(source, target, ""), *over_hcas]
