"""The routes between client and server that paths of a session take."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.hca_addresses import port_addresses, port_name


@dataclass(frozen=True)
class Route:
    """Two addresses that are connected, and the client's port there."""

    source: str
    target: str
    port: str
    """As the control socket names it."""

    @property
    def name(self) -> str:
        """Of a path over it, as the kernel calls it."""
        return f"ip:{self.source}@ip:{self.target}"

    @property
    def words(self) -> str:
        """The same without families, as command lines have it."""
        return f"{self.source}@{self.target}"


def routes(config: LabConfig) -> list[Route]:
    """From the first guest, the client, to the second: one for each of its ports."""
    client, server = config.names
    pairs = zip(port_addresses(config, client), port_addresses(config, server), strict=True)
    return [Route(ours.ip, theirs.ip, port_name(client, ours)) for ours, theirs in pairs]
