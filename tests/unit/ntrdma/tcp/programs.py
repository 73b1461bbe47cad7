"""Programs of the guest as processes of this machine, their back end TCP."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

SECONDS = 60.0


@contextlib.contextmanager
def program(name: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`python3 -m bluebridge.guest.NAME`; ended by force if it is still there at the end."""
    with module(f"bluebridge.guest.{name}", *words) as process:
        yield process


@contextlib.contextmanager
def module(name: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`python3 -m NAME` with pipes."""
    process = subprocess.Popen(
        [sys.executable, "-m", name, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def until_said(process: subprocess.Popen[str], text: str) -> None:
    """Read lines until one has `text` in it."""
    assert process.stdout is not None
    while text not in (line := process.stdout.readline()):
        assert line, f"it ended without having said {text!r}"


def success(process: subprocess.Popen[str]) -> str:
    """Return what it has printed since it was last read, when it has ended well."""
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    return output
