"""A lab of `bluebridge`'s own commands: krping between its guests, and an open console."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pexpect

from tests.vm.lab_commands import Commands, alive

KRPING = "python3 -m bluebridge.guest.protocols.krping --ip"
SERVER = f"{KRPING} 192.168.69.127 server,addr=192.168.69.127,port=9999,size=4096"
CLIENT = (
    f"{KRPING} 192.168.69.128 "
    "client,addr=192.168.69.127,port=9999,count=100000000,size=4096,validate,verbose"
)
LISTENS, FLOWS = b"rdma_listen", b"ping data"
REMOVER = b"bluebridge-remove-folder"
_PAUSE = 0.02
_PATIENCE = 120.0
"""Seconds that nothing takes but what is broken."""


class Broken(Exception):
    """What must follow did not: one line."""


class Side:
    """`bluebridge run` with one side of krping; its output goes to files."""

    def __init__(self, commands: Commands, folder: Path, name: str, line: str) -> None:
        self.name = name
        self._out, self._err = folder / f"krping-{name}.out", folder / f"krping-{name}.err"
        self.process = commands.start_into(self._out, self._err, "run", name, line)

    @property
    def output(self) -> bytes:
        """What krping has printed."""
        return self._out.read_bytes()

    @property
    def errors(self) -> str:
        """What the command said, and krping on standard error."""
        return self._err.read_text(errors="replace")

    @property
    def last_words(self) -> str:
        """What the command said last, or krping."""
        return last_line(self.errors) or last_line(self.output.decode(errors="replace"))

    def shows(self, sign: bytes) -> None:
        """Wait until krping has printed `sign`."""
        wait(lambda: sign in self.output or self.process.poll() is not None, f"no {sign!r}")
        if sign not in self.output:
            raise Broken(f"krping in {self.name} did not start: {self.last_words}")

    def end(self) -> None:
        """Kill the command, if it runs."""
        self.process.kill()
        self.process.wait()


class Lab:
    """A pair that is up, traffic, and every process that belongs to it, by what it is."""

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="killed-"))
        self.temporary = self._place / "tmp"
        self.temporary.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.temporary)
        self.commands = Commands(self._place)
        self._sides: list[Side] = []
        self._console: pexpect.spawn[str] | None = None
        self.pids: dict[str, int] = {}

    def up(self) -> None:
        """A pair, if there is none."""
        if not self.commands.ps()["pairs"]:
            self.commands.good("up", "--quiet", "--memory", "512", "--cpus", "1")

    def start_traffic(self) -> None:
        """krping in both guests, and a console."""
        self._sides = [Side(self.commands, self._place, "a", SERVER)]
        self._sides[0].shows(LISTENS)
        self._sides.append(Side(self.commands, self._place, "b", CLIENT))
        self._sides[1].shows(FLOWS)
        self.open_console()
        self.pids = self._find()

    def open_console(self) -> None:
        """That of guest b."""
        self._console = self.commands.terminal("console", "b")
        self._console.expect("Ctrl-")

    def console_ends(self) -> None:
        """Wait until the command has ended; raises `Broken`."""
        assert self._console is not None
        try:
            self._console.expect(pexpect.EOF, timeout=_PATIENCE)
        except pexpect.TIMEOUT as error:
            raise Broken("`console` still runs") from error
        self._console.wait()

    def _find(self) -> dict[str, int]:
        (pair,) = self.commands.ps()["pairs"]
        assert self._console is not None
        removers = sorted(pid for pid in self.commands.processes() if REMOVER in _words(pid))
        assert len(removers) == 2, removers
        return {
            "device server": pair["server"],
            "QEMU of a": pair["guests"][0]["pid"],
            "QEMU of b": pair["guests"][1]["pid"],
            "keeper": pair["keeper"],
            "remover of the first folder": removers[0],
            "remover of the second folder": removers[1],
            "`run` of the krping server": self._sides[0].process.pid,
            "`run` of the krping client": self._sides[1].process.pid,
            "`console`": self._console.pid,
        }

    def kill(self, victim: str) -> float:
        """Kill it now; when that was."""
        os.kill(self.pids[victim], signal.SIGKILL)
        return time.monotonic()

    @property
    def server(self) -> Side:
        """krping's server, in guest a."""
        return self._sides[0]

    @property
    def client(self) -> Side:
        """krping's client, in guest b."""
        return self._sides[1]

    @property
    def over(self) -> bool:
        """Whether a side of the traffic has ended."""
        return any(side.process.poll() is not None for side in self._sides)

    def end_traffic(self) -> None:
        """Whatever of it still runs; krping in a guest goes with its command."""
        for side in self._sides:
            side.end()
        if self._console is not None:
            self._console.close(force=True)
        self._sides, self._console = [], None
        if self.commands.ps()["pairs"]:
            for name in "ab":
                self.wait_for_no_krping(name)

    def abandon(self) -> None:
        """After a failed round: the next one has a pair of its own."""
        for side in self._sides:
            side.end()
        if self._console is not None:
            self._console.close(force=True)
        self._sides, self._console = [], None
        self.commands.run("down")

    def wait_for_no_krping(self, guest: str) -> None:
        """Its command was killed: so is krping."""
        wait(lambda: not self.running(guest), f"krping runs in {guest}")

    def running(self, guest: str) -> bool:
        """Whether krping runs in a guest."""
        said = self.commands.run("run", guest, "pgrep -f [b]luebridge.*krping").stdout
        return bool(said.strip())

    def left(self) -> list[str]:
        """What is there of a pair that has ended: processes, sockets, files of any folder."""
        commands = self.commands
        found = [f"process {pid}" for pid in commands.processes()]
        found += [f"process {pid}" for pid in self.pids.values() if alive(pid)]
        found += [f"{path}" for path in commands.runtime.iterdir()]
        found += [f"{path}" for path in self.temporary.iterdir() if path != commands.runtime]
        sockets = Path("/proc/net/unix").read_text()
        return found + [line for line in sockets.splitlines() if str(self._place) in line]

    def close(self) -> None:
        """End everything, and remove all folders."""
        self.abandon()
        with contextlib.suppress(Broken):
            wait(lambda: not self.left(), "something is left")
        shutil.rmtree(self._place, ignore_errors=True)


def wait(condition: Callable[[], object], otherwise: str, seconds: float = _PATIENCE) -> None:
    """Wait for something that nobody announces; raises `Broken`."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise Broken(f"{otherwise} after {seconds:.0f} s")
        time.sleep(_PAUSE)


def ended(process: subprocess.Popen[bytes], since: float) -> float:
    """Wait for the end of a process; seconds from `since` to it."""
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise Broken(f"{process.args!r} still runs") from error
    return time.monotonic() - since


def last_line(text: str) -> str:
    """The last line of a text, or nothing."""
    return text.strip().rpartition("\n")[2]


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
