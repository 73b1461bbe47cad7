"""`bluebridge` as its users call it: processes of their own, with run and state folders of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 240
"""Seconds that nothing takes; waiting ends with what it waits for."""
_PAUSE = 0.02


class Commands:
    """Runs `bluebridge WORDS...`; all of it shares a registry that nobody else uses."""

    def __init__(self, folder: Path) -> None:
        # Not in the test's folder: the paths of sockets are short.
        self.runtime = Path(tempfile.mkdtemp(prefix="lab-"))
        self.state = folder / "state"
        self._env = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(self.runtime),
            "XDG_STATE_HOME": str(self.state),
        }

    def start(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start it, its output streams as pipes."""
        return subprocess.Popen(
            self._argv(*words), env=self._env, cwd=ROOT, stdin=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end, with `given` as its standard input."""
        source = subprocess.DEVNULL if given is None else subprocess.PIPE
        with self.start(*words, stdin=source) as process:
            output, errors = process.communicate(given, timeout=PATIENCE)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def shell(self, script: str, folder: Path) -> str:
        """Run lines of a shell, in which `bluebridge` is a command; returns what they print.

        The first one that fails ends it.
        """
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        completed = subprocess.run(
            ["bash", "-e", "-c", script], env={**self._env, "PATH": path}, cwd=folder,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed.stdout

    def good(self, *words: str) -> str:
        """Run what must succeed; returns its standard output."""
        completed = self.run(*words)
        assert completed.returncode == 0, completed.stderr.decode()
        return completed.stdout.decode()

    def bad(self, *words: str) -> tuple[int, str]:
        """Run what must fail with one line; returns its status and that line."""
        completed = self.run(*words)
        lines = completed.stderr.decode().splitlines()
        assert completed.returncode != 0, completed.stdout
        assert len(lines) == 1, lines
        return completed.returncode, lines[0]

    def terminal(self, *words: str) -> pexpect.spawn[str]:
        """Run it at a terminal of 33 lines and 111 columns."""
        program, *rest = self._argv(*words)
        return pexpect.spawn(
            program,
            rest,
            env=self._env,
            cwd=str(ROOT),
            encoding="utf-8",
            timeout=PATIENCE,
            dimensions=(33, 111),
        )

    def ps(self) -> dict[str, Any]:
        """Return what `ps --json` tells."""
        told: dict[str, Any] = json.loads(self.good("ps", "--json"))
        return told

    def guest(self, name: str) -> dict[str, Any]:
        """Return what `ps --json` tells of one guest."""
        found = (guest for pair in self.ps()["pairs"] for guest in pair["guests"])
        return next(guest for guest in found if guest["name"] == name)

    def processes(self) -> list[int]:
        """Every process that belongs to a pair of ours: it has a path of ours among its words."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and str(self.runtime).encode() in _words(entry):
                found.append(int(entry.name))
        return found

    def wait_until_nothing_is_left(self) -> None:
        """All processes and run folders go by themselves, within moments."""
        self.wait(lambda: not self.processes() and not list(self.runtime.iterdir()))

    def close(self) -> None:
        """End all of ours and see that nothing is left."""
        self.good("down")
        self.wait_until_nothing_is_left()
        self.runtime.rmdir()

    @staticmethod
    def wait(condition: Callable[[], object]) -> None:
        """Wait for something that nobody announces."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "in vain"
            time.sleep(_PAUSE)

    @staticmethod
    def _argv(*words: str) -> list[str]:
        return [sys.executable, "-m", "bluebridge.host_tools.cli", *words]


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    return bool(_words(Path(f"/proc/{pid}")))


def _words(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
