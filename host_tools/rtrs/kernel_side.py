"""RNBD by the kernel's modules, controlled by their files in sysfs."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.perftest import wait_until
from bluebridge.host_tools.rtrs import paths
from bluebridge.host_tools.rtrs.paths import PathState, Route

DISK = "/dev/ram0"
CLIENT_ROOT = "/sys/devices/virtual/rtrs-client"
SERVER_ROOT = "/sys/devices/virtual/rtrs-server"
MAP = "/sys/devices/virtual/rnbd-client/ctl/map_device"
_SECONDS = 120.0
_FIND = "grep -lx {session} /sys/block/rnbd*/rnbd/session"


class KernelServer:
    """The kernel's rnbd-server in a guest; once loaded, it exports every block device."""

    def __init__(self, machine: Vm, session: str) -> None:
        self._machine = machine
        self._session = session

    def start(self, routes: Sequence[Route]) -> str:
        """Do nothing: the kernel's server listens on all addresses."""
        return DISK

    def statistics(self) -> list[PathState]:
        """Return the statistics of each path of the session."""
        return paths.read(self._machine, SERVER_ROOT, self._session)

    def stop(self) -> None:
        """Wait until the server has forgotten the session.

        Before that it refuses another one of that name.
        """
        gone = wait_until(f"[ ! -e {SERVER_ROOT}/{self._session} ]")
        self._machine.run(gone, timeout=_SECONDS)


class KernelClient:
    """The kernel's rnbd-client in a guest."""

    def __init__(self, machine: Vm, session: str) -> None:
        self._machine = machine
        self._session = session
        self._folder = ""
        """The folder of the mapped device's files."""

    def map(self, disk: str, routes: Sequence[Route]) -> str:
        """Map `disk` over paths along `routes`; return the block device that it becomes."""
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

    def statistics(self) -> list[PathState]:
        """Return the statistics of each path of the session."""
        return paths.read(self._machine, CLIENT_ROOT, self._session)

    def reconnect(self, route: Route) -> None:
        """Ask for a reconnection, whose failure is not reported.

        It fails while the server still has the old path, or cannot be reached.
        """
        file = f"{CLIENT_ROOT}/{self._session}/paths/{route.name}/reconnect"
        self._machine.run(f"echo 1 > {file}", timeout=_SECONDS, check=False)

    def disconnect(self, route: Route) -> None:
        """Disconnect the path; return when it is disconnected."""
        file = f"{CLIENT_ROOT}/{self._session}/paths/{route.name}/disconnect"
        self._machine.run(f"echo 1 > {file}", timeout=_SECONDS)

    def unmap(self) -> None:
        """Unmap the block device, which closes the session if it is the last one."""
        self._machine.run(f"echo normal > {self._folder}/unmap_device", timeout=_SECONDS)
