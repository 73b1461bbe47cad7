"""A guest that virtme-ng starts takes the HCA of a pair: the lines of docs/your-kernel.md."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bluebridge.images.artefacts import Artefacts
from bluebridge.images.unpack import foreign
from tests.models.lab_commands import PATIENCE, ROOT, Commands
from tests.vm.test_bisect_vm import block

pytestmark = pytest.mark.timeout(3 * PATIENCE)

VIRTME = "virtme-ng==1.42"
LIMITED = 'vng() { timeout --kill-after=5 200 "$(type -P vng)" "$@" || :; }'
"""Nothing of it outlives the test; its status is 255, as the page says."""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with `vng`, and with those of the host's programs that a machine may not have."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", VIRTME]
    subprocess.run(install, check=True)
    guest = Artefacts().folder("guest") / "root"
    for name in ("modprobe", "depmod"):
        words = shlex.join(foreign(guest, "usr/bin/kmod", name))
        (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (folder / "bin" / name).chmod(0o755)
    (folder / "bin/busybox").symlink_to(guest / "usr/bin/busybox")
    return folder / "bin"


@pytest.mark.full
def test_the_lines_of_the_page_reach_the_other_guest(
    bluebridge: Commands, programs: Path, tmp_path: Path
) -> None:
    artefacts = Artefacts()
    (kernel,) = artefacts.folder("kernel").glob("root/boot/vmlinuz-*")
    root = artefacts.folder("guest") / "root"
    lines = block((ROOT / "docs/your-kernel.md").read_text(), "mkdir hca")
    start = f"PATH={programs}:$PATH\nKERNEL={kernel}\nROOT={root}\nexec 2>&1\n{LIMITED}\n"
    told = bluebridge.shell(start + lines.replace("python3 -m", f"{sys.executable} -m"), tmp_path)
    assert "3 packets transmitted, 3 received" in told, told
    assert "mlx4_0" in told, told
