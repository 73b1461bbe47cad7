"""Small programs of the guest's root that Debian has in packages that are left out."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from bluebridge.images.recipes import guest

SCRIPTS = Path(guest.__file__).parents[1] / "guest"


def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script as the guest's shell does."""
    line = ["sh", str(SCRIPTS / name), *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("words", "number"),
    [([], signal.SIGTERM), (["-9"], signal.SIGKILL), (["-SIGUSR1", "-x"], signal.SIGUSR1)],
)
def test_pkill_ends_processes_by_name(tmp_path: Path, words: list[str], number: int) -> None:
    """The right ones only, and the status says whether there were any."""
    name = f"b{secrets.token_hex(6)}"
    for each in (name, f"{name}2"):
        shutil.copy(shutil.which("sleep") or "", tmp_path / each)
    with (
        subprocess.Popen([tmp_path / name, "600"]) as wanted,
        subprocess.Popen([tmp_path / f"{name}2", "600"]) as other,
        contextlib.ExitStack() as at_the_end,
    ):
        for process in (wanted, other):
            at_the_end.callback(process.kill)
        assert run("pkill", "-x", f"{name}3").returncode == 1
        assert run("pkill", *words, name).returncode == 0
        assert wanted.wait(10) == -number
        if "-x" not in words:
            assert other.wait(10) == -number
        done = run("pkill", "-f", f"{name}2 600")
        assert done.returncode == (0 if "-x" in words else 1), done.stderr
        other.wait(10)
    assert run("pkill").stderr.startswith("pkill: one pattern")


def test_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    read, write = os.openpty()
    process = subprocess.Popen(
        ["sh", str(SCRIPTS / "nohup"), "sh", "-c", "kill -HUP $$; echo goes on"],
        cwd=tmp_path,
        stdin=write,
        stdout=write,
        stderr=write,
    )
    os.close(write)
    assert process.wait(10) == 0
    os.close(read)
    assert (tmp_path / "nohup.out").read_text() == "goes on\n"
    assert run("nohup", "echo", "to a pipe").stdout == "to a pipe\n"
    assert run("nohup").returncode == 125


def test_udevadm_has_nothing_to_wait_for() -> None:
    assert run("udevadm", "settle").returncode == 0
    done = run("udevadm", "info", "/dev/sda")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
