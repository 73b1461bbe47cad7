"""The routes between client and server that paths of a session take: NTRDMA's, and ports'."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.host_tools.lab.config import NTRDMA_ADDRESSES, LabConfig
from bluebridge.host_tools.lab.hca_addresses import port_addresses, port_name


@dataclass(frozen=True)
class Route:
    """Two addresses that are connected, and the client's port there."""

    source: str
    target: str
    port: str
    """The control socket's name of the port; empty for NTRDMA."""

    @property
    def name(self) -> str:
        """Return the kernel's name of a path over this route."""
        return f"ip:{self.source}@ip:{self.target}"

    @property
    def words(self) -> str:
        """The same without families, as command lines have it."""
        return f"{self.source}@{self.target}"


def routes(config: LabConfig) -> list[Route]:
    """From the first guest, the client, to the second: over the bridge, then over each port."""
    client, server = config.names
    pairs = zip(port_addresses(config, client), port_addresses(config, server), strict=True)
    over_hcas = [Route(ours.ip, theirs.ip, port_name(client, ours)) for ours, theirs in pairs]
    if config.bridge is None:
        return over_hcas
    source, target = (address.partition("/")[0] for address in NTRDMA_ADDRESSES)
    return [Route(source, target, ""), *over_hcas]
