"""`bluebridge` as a subprocess, and the means to see that it left nothing behind."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bluebridge.host_tools import processes
from tests.models.lab_commands import ROOT

SECONDS = 240
"""Seconds that nothing takes, guests that boot included."""


class Tool:
    """A `bluebridge` in a subprocess with run folders of its own."""

    def __init__(self, folder: Path, words: Sequence[str]) -> None:
        """Start it; standard error goes to a file, so that it can be read while it runs."""
        # Not in the test's folder: the paths of sockets are short.
        self.runtime = Path(tempfile.mkdtemp(prefix="tool-"))
        self._errors = folder / "stderr"
        self._process = processes.spawn(
            [sys.executable, "-m", "bluebridge.host_tools.cli", *words],
            env={"XDG_RUNTIME_DIR": str(self.runtime), "XDG_STATE_HOME": str(folder)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._errors.open("wb"),
        )
        self.children: dict[int, str] = {}

    @property
    def errors(self) -> str:
        """Return what it printed on standard error so far."""
        return self._errors.read_text()

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for `condition` while the tool runs; remembers the children seen on the way."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            self.children.update(_children(self._process.pid))
            assert self._process.poll() is None, f"ended before {what}: {self.errors}"
            assert time.monotonic() < deadline, f"no {what}: {self.errors}"
            time.sleep(0.05)
        self.children.update(_children(self._process.pid))

    def child(self, word: str) -> int:
        """The pid of the child that has `word` in its command line."""
        self.children.update(_children(self._process.pid))
        return next(pid for pid, command in self.children.items() if word in command)

    def signal(self, number: signal.Signals) -> None:
        """Send the tool a signal."""
        self._process.send_signal(number)

    def finish(self, timeout: float = SECONDS) -> tuple[int, str]:
        """Wait for its end; returns exit status and standard output."""
        output, _ = self._process.communicate(timeout=timeout)
        return self._process.returncode, output.decode()

    def assert_nothing_left(self) -> None:
        """All children gone, and no run folder: within seconds, the kernel does it by itself."""
        deadline = time.monotonic() + 20
        while (left := self._leftovers()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left

    def _leftovers(self) -> list[str]:
        living = [command for pid, command in self.children.items() if _command(pid) == command]
        return living + [str(path) for path in self.runtime.iterdir()]

    def kill(self) -> None:
        """End it hard, for a test that failed."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.runtime, ignore_errors=True)


@contextmanager
def tools(folder: Path) -> Iterator[Callable[..., Tool]]:
    """Starts `bluebridge WORDS...` at each call; all that it started ends with the block."""
    with ExitStack() as started:

        def start(*words: str) -> Tool:
            tool = Tool(folder, words)
            started.callback(tool.kill)
            return tool

        yield start


def _command(pid: int) -> str:
    """The command line of a process; empty when it is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _children(pid: int) -> dict[int, str]:
    """Children of a process with their command lines."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return {}
    commands = {int(child): _command(int(child)) for child in listed}
    return {child: command for child, command in commands.items() if command}
