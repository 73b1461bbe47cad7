"""The accelerator of QEMU, KVM or TCG, found out by running a guest.

`/dev/kvm` can be opened, and a virtual machine created, on processors that cannot run one, or only
by interpreting it. So a loop has to end in half a second, then a kernel has to boot up to its first
process. The result is kept until the host restarts.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Literal

from bluebridge.images import kvm_speed
from bluebridge.images.artefacts import Artefacts, Qemu
from bluebridge.images.kvm_speed import DEVICE
from bluebridge.images.report import step

Accelerator = Literal["kvm", "tcg"]
PROBE_SECONDS = 10.0
POLL_SECONDS = 0.05
REACHED = b"Unable to mount root fs"
"""Printed by a kernel that booted completely and has no root file system."""


def accelerator(artefacts: Artefacts) -> Accelerator:
    """`kvm` if a guest ran with it on this machine since its last start, else `tcg`."""
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return "tcg"
    qemu, kernel = artefacts.qemu(), artefacts.kernel()
    remembered = artefacts.cache.root / "accelerator.json"
    machine = [_machine(), qemu.version, kernel.parent.name]
    known = _read(remembered)
    if known.get("machine") == machine:
        return "kvm" if known.get("kvm") else "tcg"
    with step("does KVM run a guest here"):
        works = kvm_speed.runs_at_speed() and probe(qemu, kernel)
    aside = remembered.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps({"machine": machine, "kvm": works}))
    aside.rename(remembered)
    return "kvm" if works else "tcg"


def probe(qemu: Qemu, kernel: Path, kind: str = "kvm", seconds: float = PROBE_SECONDS) -> bool:
    """Whether a guest under accelerator `kind` reaches the end of its boot within `seconds`."""
    with tempfile.TemporaryDirectory() as folder:
        console = Path(folder) / "console"
        command = [
            *qemu.command,
            *("-accel", kind, "-machine", "q35", "-m", "256", "-nodefaults", "-display", "none"),
            *("-no-reboot", "-serial", f"file:{console}"),
            *("-kernel", str(kernel), "-append", "console=ttyS0 panic=-1"),
        ]
        process = subprocess.Popen(
            command,
            env={**os.environ, **qemu.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return _reaches(process, console, time.monotonic() + seconds)
        finally:
            # QEMU hangs with a guest that KVM cannot run and does not react to SIGTERM.
            process.kill()
            process.wait()


def _reaches(process: subprocess.Popen[bytes], console: Path, deadline: float) -> bool:
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        if console.exists() and REACHED in console.read_bytes():
            return True
        if ended:
            return False
        time.sleep(POLL_SECONDS)
    return False


def _machine() -> str:
    """The boot id, which changes at each start of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _read(path: Path) -> dict[str, object]:
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
