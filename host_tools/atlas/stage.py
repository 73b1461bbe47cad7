"""The pair on which the atlas runs: drivers, a look at its health, guests that start anew."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import IO

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools import processes
from bluebridge.host_tools.agent import CommandTimedOut
from bluebridge.host_tools.atlas.outcome import Row
from bluebridge.host_tools.atlas.programs import EVENTS, SERVER, Program
from bluebridge.host_tools.errors import CommandFailed, LabError, Progress
from bluebridge.host_tools.lab import artefacts
from bluebridge.host_tools.lab.artefacts import message_libraries, nfs_archive
from bluebridge.host_tools.lab.config import ADDRESSES, KERNEL, LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.perftest import VERBS_PORT, listening
from bluebridge.host_tools.programs.running import Running

_UP_SECONDS = 60.0
_HEALTHY_SECONDS = 25.0
QUIET_SECONDS = 2.0
_QUIET_BYTES = 16 << 10
"""What a few frames take in the bus log, besides twice what idle drivers do."""
_RELOAD_SECONDS = 8.0
"""Seconds for one look whether the drivers are back: their core may begin anew meanwhile."""
_CHECK = "ibv_rc_pingpong -e -g 0 -n 20"
_UNLOAD = "modprobe -r rnbd_client rnbd_server"
_SOURCE = Path(str(files(__package__) / "guest_events.py"))
YES, RESTARTED, NO = "yes", "after a restart", "no"

_GRACE_SECONDS = 30.0
"""The seconds that a share gets to end its guests."""


class Stage:
    """A pair under the kernel's drivers, whose guest a gets the faults."""

    def __init__(self, pair: Pair, rnbd: bool, added: Sequence[Path] = ()) -> None:
        """Prepare the guests; `added` are archives of programs that their root lacks."""
        self.pair = pair
        self._rnbd = rnbd
        self._added = added
        self.card = pair.config.card("a").name
        self._loader = pair.config.card("a").loader
        self.usual: dict[str, float] = {}
        """Seconds that programs take without a fault, by name; only of those that were measured."""
        for machine in pair.machines:
            self._prepare(machine)
        before = self.traffic()
        time.sleep(QUIET_SECONDS)
        self.quiet = 2 * abs(self.traffic() - before) + _QUIET_BYTES
        """Bytes of the bus log in `QUIET_SECONDS` up to which no program moves anything."""

    def _prepare(self, machine: Vm) -> None:
        machine.run([self._loader, _address(machine)], timeout=_UP_SECONDS)
        if self._rnbd:
            machine.run(_UNLOAD, check=False)
        artefacts.unpack(machine, self._added)
        if self._added:
            machine.run("depmod", timeout=_UP_SECONDS)  # some bring modules
        machine.agent.put(_SOURCE, EVENTS)
        machine.run("dmesg -c > /dev/null")

    def healthy(self) -> bool:
        """Return True once messages go from a to b again; False after `_HEALTHY_SECONDS`."""
        deadline = time.monotonic() + _HEALTHY_SECONDS
        while True:
            with contextlib.suppress(CommandFailed, CommandTimedOut):
                with Running(self.pair.b, _CHECK, _HEALTHY_SECONDS) as server:
                    server.until(listening(VERBS_PORT), 5)
                    self.pair.a.run(f"{_CHECK} {SERVER}", timeout=5)
                return True
            if time.monotonic() > deadline:
                return False
            with contextlib.suppress(CommandFailed, CommandTimedOut):
                for machine in self.pair.machines:
                    machine.run([self._loader, _address(machine)], timeout=_RELOAD_SECONDS)

    def recover(self) -> str:
        """Return `YES` if all works, else start guests anew and return whether it works then."""
        with contextlib.suppress(LabError):
            if self.healthy():
                return YES
        for machine in self.pair.machines:
            self.restart(machine)
        return RESTARTED if self.healthy() else NO

    def restart(self, machine: Vm) -> None:
        """Switch a guest off and on. Raises `LabError`."""
        self.pair.restart(machine.name)
        self._prepare(machine)

    def traffic(self) -> int:
        """Return the bytes of the bus log, which tell whether anything goes over the buses."""
        found = 0
        for file in (self.pair.logs / "bus").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the oldest part has made room
                found += file.stat().st_size
        return found

    def taken(self, number: str) -> int:
        """Return how much an armed fault of HCA a has taken."""
        for line in self.pair.server.tell("armed a"):
            if line.startswith(f"{number} "):
                return int(line.rpartition(" ")[2])
        return 0


def _address(machine: Vm) -> str:
    return ADDRESSES["ab".index(machine.name)]


@contextlib.contextmanager
def opened(
    programs: Sequence[Program], card: str, log: Path | None, progress: Progress
) -> Iterator[Stage]:
    """Start the pair with adapters of that name that `programs` need. Raises `LabError`."""
    rnbd = any(program.rnbd for program in programs)
    options = ServerOptions(card=card)
    config = LabConfig(
        log=log, vfio=False, rtrs=(KERNEL, KERNEL) if rnbd else None, options=options
    )
    messages = any(program.messages for program in programs)
    added = [message_libraries(progress)] if messages else []
    added += [nfs_archive(progress)] if any(program.nfs for program in programs) else []
    with Pair(config, progress) as pair:
        yield Stage(pair, rnbd, added)


def run(
    shares: Mapping[str, Sequence[str]], at_once: int, words: Sequence[str], log: Path
) -> Iterator[Row]:
    """Yield the rows of `shares`, the names of faults by that of a program, in any order.

    `words` are options of `bluebridge atlas` for all of them.
    Raises `LabError` when a share could not go on, after all others have ended.
    """
    waiting = dict(shares)
    failed: list[str] = []
    with contextlib.ExitStack() as owned:
        running: dict[str, subprocess.Popen[bytes]] = {}
        while waiting or running:
            while waiting and len(running) < at_once:
                name = next(iter(waiting))
                running[name] = _start(name, waiting.pop(name), words, log / name)
                owned.callback(processes.stop, running[name], _GRACE_SECONDS)
            for name in _ready(running):
                line = _output(running[name]).readline()
                if line:
                    yield Row(**json.loads(line))
                elif running.pop(name).wait() not in (0, 1):
                    failed.append(name)
    if failed:
        raise LabError(f"the atlas of {', '.join(failed)} did not end", "its reason is above")


def _ready(running: Mapping[str, subprocess.Popen[bytes]]) -> list[str]:
    """Wait until at least one share has printed something or ended; return the names of those."""
    # A line that waits in a buffer is told with the next one, or at the end.
    by_file = {_output(share).fileno(): name for name, share in running.items()}
    return [by_file[each] for each in select.select([*by_file], [], [])[0]] if by_file else []


def _output(share: subprocess.Popen[bytes]) -> IO[bytes]:
    assert share.stdout is not None
    return share.stdout


def _start(
    name: str, faults: Sequence[str], words: Sequence[str], log: Path
) -> subprocess.Popen[bytes]:
    own = ["--programs", name, "--only", ",".join(faults), "--json", "--log", str(log)]
    command = [sys.executable, "-m", "bluebridge.host_tools.cli", "atlas", *own, *words]
    return processes.spawn(command, stdout=subprocess.PIPE, stderr=sys.stderr.buffer)
