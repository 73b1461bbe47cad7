"""A folder that goes with its process, whoever is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from bluebridge.host_tools.processes import removed_at_end

SECONDS = 10.0


def remover_of(folder: Path) -> int:
    """The process that waits to remove a folder; its words are there soon after its start."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and str(folder).encode() in _words(entry):
                return int(entry.name)
    raise AssertionError("no process")


def _words(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_folder_goes_although_its_remover_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "file").touch()
    with removed_at_end(folder):
        os.kill(remover_of(folder), signal.SIGKILL)
    assert not folder.exists()
