"""Who speaks RNBD in a guest, kernel or guest's Python, and the paths of their sessions."""

from __future__ import annotations

import re
import shlex
import signal
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from bluebridge.guest.providers import NTRDMA
from bluebridge.host_tools.agent.guest_command import Command
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.hosts.host import Host
from bluebridge.host_tools.lab.config import NTRDMA_ADDRESSES, LabConfig
from bluebridge.host_tools.lab.guest_drivers import (
    RAM_DISK_MIB,
    function,
    port_addresses,
    port_name,
)
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.running import wait_until

CONNECTED = "connected"
_READ_SECONDS = 60.0
_READ = """
cd $1/$2/paths 2>/dev/null || exit 0
for path in *; do
    told="$path|$(cat $path/state 2>/dev/null)|$(cat $path/stats/rdma)"
    echo "$told|$(cat $path/stats/reconnects 2>/dev/null)"
done
"""

DISK = "/dev/ram0"
CLIENT_ROOT = "/sys/devices/virtual/rtrs-client"
SERVER_ROOT = "/sys/devices/virtual/rtrs-server"
MAP = "/sys/devices/virtual/rnbd-client/ctl/map_device"
_SECONDS = 120.0
_FIND = "grep -lx {session} /sys/block/rnbd*/rnbd/session"

_EXPORT = "disk"
_ROOT = "/run/bluebridge"
_PROGRAM = ("python3", "-m", "bluebridge.guest.protocols.rnbd")
_MAPPED = re.compile(r"rnbd: mapped (/dev/nbd\d+) size \d+")
_READY = """
until grep -q "$2" $1; do [ -e $1.end ] && exit 1; sleep 0.1; done
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
    said = machine.run(["sh", "-c", _READ, "read", root, session], timeout=_READ_SECONDS).text
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


class Side:
    """A side in a guest, whose sessions have their files below `root`."""

    def __init__(self, machine: Vm, session: str, root: str) -> None:
        self._machine = machine
        self._session = session
        self._root = root

    def statistics(self) -> list[PathState]:
        """Return the statistics of each path of the session."""
        return read(self._machine, self._root, self._session)


class Server(Side, ABC):
    """A server of RNBD in a guest, which exports a disk. Every method raises `LabError`."""

    @abstractmethod
    def start(self) -> str:
        """Export a disk at all addresses; return the name by which clients map it."""

    @abstractmethod
    def stop(self) -> None:
        """End the export of a session that the client has closed."""


class Client(Side, ABC):
    """A client of RNBD in a guest, which maps a disk. Every method raises `LabError`."""

    @abstractmethod
    def map(self, disk: str, routes: Sequence[Route]) -> str:
        """Map `disk` over paths along `routes`; return the block device that it becomes."""

    @abstractmethod
    def unmap(self) -> None:
        """Unmap the block device, and close the session."""

    def reconnect(self, route: Route) -> None:
        """Reconnect a path now, without the reconnect delay; a failure is not reported.

        It fails while the server still has the old path, or cannot be reached.
        """
        self._machine.run(
            f"echo 1 > {self._file(route, 'reconnect')}", timeout=_SECONDS, check=False
        )

    def disconnect(self, route: Route) -> None:
        """Disconnect a path until it is asked to reconnect; return when it is disconnected."""
        self._machine.run(f"echo 1 > {self._file(route, 'disconnect')}", timeout=_SECONDS)

    def _file(self, route: Route, name: str) -> str:
        return f"{self._root}/{self._session}/paths/{route.name}/{name}"


class KernelServer(Server):
    """The kernel's rnbd-server in a guest; once loaded, it exports every block device."""

    def __init__(self, machine: Vm, session: str) -> None:
        super().__init__(machine, session, SERVER_ROOT)

    def start(self) -> str:
        """Do nothing: the kernel's server listens on all addresses."""
        return DISK

    def stop(self) -> None:
        """Wait until the server has forgotten the session.

        Before that it refuses another one of that name.
        """
        gone = wait_until(f"[ ! -e {SERVER_ROOT}/{self._session} ]")
        self._machine.run(gone, timeout=_SECONDS)


class KernelClient(Client):
    """The kernel's rnbd-client in a guest."""

    def __init__(self, machine: Vm, session: str) -> None:
        super().__init__(machine, session, CLIENT_ROOT)
        self._folder = ""
        """The folder of the mapped device's files."""

    def map(self, disk: str, routes: Sequence[Route]) -> str:
        for route in routes:
            # The kernel's rdma_resolve_addr asks ARP and then begins to wait for the answer: one
            # that comes in between is seen only after the whole time limit, 30 s (core/addr.c:
            # queue_req). A neighbour that is known is not asked for.
            know = f"ping -c 1 -W 1 {route.target} > /dev/null"
            self._machine.run(know, timeout=_SECONDS, check=False)
        paths = " ".join(f"path={route.name}" for route in routes)
        words = f"sessname={self._session} {paths} device_path={disk}"
        if self._machine.run(f"echo '{words}' > {MAP}", timeout=_SECONDS, check=False).status:
            raise self._refused(disk)
        found = self._machine.run(_FIND.format(session=self._session), timeout=_SECONDS).text
        self._folder = found.splitlines()[-1].removesuffix("/session")
        return f"/dev/{self._folder.split('/')[3]}"

    def _refused(self, disk: str) -> LabError:
        said = self._machine.run("dmesg | grep -E 'rnbd|rtrs' | tail -n 20", check=False).text
        last = said.rpartition("\n")[2].partition("] ")[2]
        what = f"guest {self._machine.name}: {disk} cannot be mapped: {last}"
        return LabError(what, "read dmesg in both guests", said)

    def unmap(self) -> None:
        """Unmap the block device, which closes the session if it is the last one."""
        self._machine.run(f"echo normal > {self._folder}/unmap_device", timeout=_SECONDS)


def interfaces(config: LabConfig, back_end: str, side: Vm | Host) -> list[str]:
    """Return `--interface` and its values for the program of a side."""
    found = [
        f"{function(side, address)}/{address.port}={address.bits}"
        for address in port_addresses(config, side.name)
    ]
    if config.bridge is not None:
        address = NTRDMA_ADDRESSES[config.names.index(side.name)]
        found = [f"{NTRDMA}:{back_end}={address}", *found]
    return [word for each in found for word in ("--interface", each)]


class Program:
    """One run of the program in a guest, with `given` words, its output in a file there."""

    def __init__(self, machine: Vm, given: Sequence[str], role: str) -> None:
        self._machine = machine
        self._given = given
        self._role = role
        self._log = f"/run/rnbd-{role}.log"
        self._command: Command | None = None

    def start(self, words: Sequence[str], ready: str) -> str:
        """Start the program; return its output once that has the text `ready`.

        Raises `LabError` with the output when the program ends before.
        """
        line = shlex.join([*_PROGRAM, self._role, *words, *self._given])
        self._machine.run(f"rm -f {self._log}.end; : > {self._log}", timeout=_SECONDS)
        log = self._log
        # The shell outlives the signal that ends the program, so its end is the program's.
        whole = f"trap '' TERM; {line} > {log} 2>&1; touch {log}.end"
        self._command = self._machine.agent.start(whole)
        done = self._machine.run(
            ["sh", "-c", _READY, "ready", log, ready], timeout=_SECONDS, check=False
        )
        said = self._machine.run(f"cat {log}", timeout=_SECONDS).text
        if done.status:
            last = next((line for line in reversed(said.splitlines()) if line.strip()), "nothing")
            what = f"guest {self._machine.name}: the RNBD {self._role} ended: {last}"
            raise LabError(what, "", said)
        return said

    def stop(self) -> None:
        """End the program by SIGTERM, and wait for its end."""
        if self._command is not None:
            self._command.signal(signal.SIGTERM)
            self._command.wait()
            self._command = None


class PythonServer(Server):
    """The guest's Python as server; it exports a RAM disk of its own memory."""

    def __init__(self, machine: Vm, given: Sequence[str], session: str) -> None:
        super().__init__(machine, session, f"{_ROOT}/rtrs-server")
        self._program = Program(machine, given, "server")

    def start(self) -> str:
        """Export the disk at all addresses of the guest; return its name."""
        self._program.start(["--export", f"{_EXPORT}=ram:{RAM_DISK_MIB}M"], "rnbd: serving")
        return _EXPORT

    def stop(self) -> None:
        """End the program."""
        self._program.stop()


class HostServer(Server):
    """A program of this machine as server; it exports a RAM disk of its own memory."""

    def __init__(self, host: Host, given: Sequence[str]) -> None:
        self._host = host
        self._given = given

    def start(self) -> str:
        """Export the disk at all addresses of the host; return its name. Main thread only."""
        words = [*_PROGRAM, "server", "--export", f"{_EXPORT}=ram:{RAM_DISK_MIB}M", *self._given]
        self._host.begin(shlex.join(words))
        status, said = self._host.finish(_SECONDS, progress="rnbd: serving")
        if status >= 0:
            last = said.rpartition("\n")[2]
            raise LabError(f"host {self._host.name}: the RNBD server ended: {last}", "", said)
        return _EXPORT

    def stop(self) -> None:
        """End the program."""
        self._host.interrupt()
        self._host.output(_SECONDS)

    def statistics(self) -> list[PathState]:
        """Return nothing: the files of sessions are a guest's."""
        return []


class PythonClient(Client):
    """The guest's Python as client; it gives the guest a block device through nbd."""

    def __init__(self, machine: Vm, given: Sequence[str], session: str) -> None:
        super().__init__(machine, session, f"{_ROOT}/rtrs-client")
        self._program = Program(machine, given, "client")

    def map(self, disk: str, routes: Sequence[Route]) -> str:
        words = ["--session", self._session, "--device", disk]
        for route in routes:
            words += ["--path", route.words]
        said = self._program.start(words, "rnbd: mapped")
        found = _MAPPED.search(said)
        if found is None:
            raise LabError(f"guest {self._machine.name}: no device was mapped", "", said)
        return found[1]

    def unmap(self) -> None:
        """End the program, which unmaps its device and closes the session."""
        self._program.stop()
