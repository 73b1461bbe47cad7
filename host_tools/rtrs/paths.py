"""Routes between client and server, and the states of the paths over them."""

from __future__ import annotations

from dataclasses import dataclass, field

from bluebridge.host_tools.lab.config import NTRDMA_ADDRESSES, LabConfig
from bluebridge.host_tools.lab.guest_drivers import port_addresses, port_name
from bluebridge.host_tools.machine.vm import Vm

CONNECTED = "connected"
_SECONDS = 60.0
_READ = """
cd $1/$2/paths 2>/dev/null || exit 0
for path in *; do
    told="$path|$(cat $path/state 2>/dev/null)|$(cat $path/stats/rdma)"
    echo "$told|$(cat $path/stats/reconnects 2>/dev/null)"
done
"""


@dataclass(frozen=True)
class PathState:
    """The state of one path of a session, read from its files."""

    name: str
    state: str = ""
    """`connected` or `disconnected`; empty on a server, which does not tell."""
    rdma: tuple[int, ...] = ()
    """The counts of reads, bytes read, writes, bytes written.

    A client also has the requests under way and the fail-overs.
    """
    reconnects: tuple[int, ...] = field(default=())
    """The successful and failed reconnections of a client; empty on a server."""

    @property
    def connected(self) -> bool:
        """Whether a client may use the path."""
        return self.state == CONNECTED

    @property
    def failovers(self) -> int:
        """The number of requests that this path took over from another one that failed."""
        return self.rdma[5] if len(self.rdma) > 5 else 0

    @property
    def reconnected(self) -> int:
        """The number of times that the path came back."""
        return self.reconnects[0] if self.reconnects else 0


def read(machine: Vm, root: str, session: str) -> list[PathState]:
    """Return all paths of a session below `root`; none when there is no such session."""
    said = machine.run(["sh", "-c", _READ, "read", root, session], timeout=_SECONDS).text
    return [parse(line) for line in said.splitlines()]


def parse(line: str) -> PathState:
    """Parse a line `PATH|STATE|RDMA|RECONNECTS`."""
    name, state, rdma, reconnects = line.split("|")
    return PathState(name, state, _numbers(rdma), _numbers(reconnects))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split())


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
