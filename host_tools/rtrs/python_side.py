"""RNBD by the guest's Python: `python3 -m bluebridge.guest.protocols.rnbd`."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from bluebridge.guest.protocols.ntrdma.back_ends import BACK_END
from bluebridge.guest.providers import NTRDMA
from bluebridge.host_tools.agent.guest_command import Command
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.config import NTRDMA_ADDRESSES, LabConfig
from bluebridge.host_tools.lab.guest_drivers import RAM_DISK_MIB, function, port_addresses
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.rtrs import paths
from bluebridge.host_tools.rtrs.paths import PathState, Route

DISK = "disk"
ROOT = "/run/bluebridge"
_PROGRAM = ("python3", "-m", "bluebridge.guest.protocols.rnbd")
_MAPPED = re.compile(r"rnbd: mapped (/dev/nbd\d+) size \d+")
_SECONDS = 120.0
_READY = """
until grep -q "$2" $1; do [ -e $1.end ] && exit 1; sleep 0.1; done
"""


@dataclass(frozen=True)
class Given:
    """The configuration that determines the interfaces of the guest's programs."""

    config: LabConfig
    back_end: str = BACK_END

    def interfaces(self, machine: Vm) -> list[str]:
        """Return the values of `--interface` for the program in a guest."""
        config = self.config
        found = [
            f"{function(machine, address)}/{address.port}={address.bits}"
            for address in port_addresses(config, machine.name)
        ]
        if config.bridge is None:
            return found
        address = NTRDMA_ADDRESSES[config.names.index(machine.name)]
        return [f"{NTRDMA}:{self.back_end}={address}", *found]


class Program:
    """One run of the program in a guest, its output in a file there."""

    def __init__(self, machine: Vm, given: Given, role: str) -> None:
        self._machine = machine
        self._given = given
        self._role = role
        self._log = f"/run/rnbd-{role}.log"
        self._command: Command | None = None

    def start(self, words: Sequence[str], ready: str) -> str:
        """Start the program; return its output once that has the text `ready`.

        Raises `LabError` with the output when the program ends before.
        """
        line = shlex.join([*_PROGRAM, self._role, *words, *self._interfaces()])
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

    def _interfaces(self) -> list[str]:
        found = self._given.interfaces(self._machine)
        return [word for each in found for word in ("--interface", each)]


class PythonServer:
    """The guest's Python as server; it exports a RAM disk of its own memory."""

    def __init__(self, machine: Vm, given: Given, session: str) -> None:
        self._machine = machine
        self._session = session
        self._program = Program(machine, given, "server")

    def start(self, routes: Sequence[Route]) -> str:
        """Export the disk at all addresses of the guest; return its name."""
        self._program.start(["--export", f"{DISK}=ram:{RAM_DISK_MIB}M"], "rnbd: serving")
        return DISK

    def statistics(self) -> list[PathState]:
        """Return the statistics of each path of the session."""
        return paths.read(self._machine, f"{ROOT}/rtrs-server", self._session)

    def stop(self) -> None:
        """End the program."""
        self._program.stop()


class PythonClient:
    """The guest's Python as client; it gives the guest a block device through nbd."""

    def __init__(self, machine: Vm, given: Given, session: str) -> None:
        self._machine = machine
        self._session = session
        self._program = Program(machine, given, "client")

    def map(self, disk: str, routes: Sequence[Route]) -> str:
        """Map `disk` over paths along `routes`; return the block device that it becomes."""
        words = ["--session", self._session, "--device", disk]
        for route in routes:
            words += ["--path", route.words]
        said = self._program.start(words, "rnbd: mapped")
        found = _MAPPED.search(said)
        if found is None:
            raise LabError(f"guest {self._machine.name}: no device was mapped", "", said)
        return found[1]

    def statistics(self) -> list[PathState]:
        """Return the statistics of each path of the session."""
        return paths.read(self._machine, f"{ROOT}/rtrs-client", self._session)

    def reconnect(self, route: Route) -> None:
        """Ask for a reconnection, which fails silently while the server cannot be reached."""
        file = f"{ROOT}/rtrs-client/{self._session}/paths/{route.name}/reconnect"
        self._machine.run(f"echo 1 > {file}", timeout=_SECONDS, check=False)

    def disconnect(self, route: Route) -> None:
        """Disconnect the path; return when it is disconnected."""
        file = f"{ROOT}/rtrs-client/{self._session}/paths/{route.name}/disconnect"
        self._machine.run(f"echo 1 > {file}", timeout=_SECONDS)

    def unmap(self) -> None:
        """End the program, which unmaps its device and closes the session."""
        self._program.stop()
