"""The KVM probe succeeds if a guest ran, and ends an emulator that hangs."""

from __future__ import annotations

import time
from pathlib import Path

from bluebridge.images.accelerator import REACHED, probe
from bluebridge.images.artefacts import Qemu

SAY = 'for word; do case "$word" in file:*) echo "{text}" > "${{word#file:}}" ;; esac; done\n'
HANG = 'trap "" TERM INT\necho $$ > "{pids}"\nwhile :; do sleep 0.1; done\n'


def emulator(folder: Path, body: str) -> Qemu:
    """A script in place of QEMU, which every test of tests/vm boots."""
    program = folder / "qemu"
    program.write_text("#!/bin/sh\n" + body)
    program.chmod(0o755)
    return Qemu([str(program)], "0")


def test_a_guest_that_ran_counts(tmp_path: Path) -> None:
    qemu = emulator(tmp_path, SAY.format(text=REACHED.decode()))
    assert probe(qemu, tmp_path / "vmlinux")


def test_an_emulator_that_ends_early_does_not(tmp_path: Path) -> None:
    qemu = emulator(tmp_path, SAY.format(text="KVM: entry failed"))
    assert not probe(qemu, tmp_path / "vmlinux")


def test_an_emulator_that_hangs_is_ended(tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    started = time.monotonic()
    assert not probe(emulator(tmp_path, HANG.format(pids=pids)), tmp_path / "vmlinux", seconds=0.5)
    assert time.monotonic() - started < 5
    assert not Path(f"/proc/{pids.read_text().strip()}").exists()
