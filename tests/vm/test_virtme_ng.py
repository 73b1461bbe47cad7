"""A guest that virtme-ng starts takes the HCA of a pair: the lines of docs/your-kernel.md."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bluebridge.images import kernel_build
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


@pytest.fixture
def debians() -> tuple[Path, Path]:
    """Debian's kernel, and a root with its modules."""
    artefacts = Artefacts()
    (kernel,) = artefacts.folder("kernel").glob("root/boot/vmlinuz-*")
    return kernel, artefacts.folder("guest") / "root"


@pytest.fixture
def built_here(programs: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The kernel of `kernel build`, and a copy of the guests' root with its modules."""
    artefacts = Artefacts()
    folder = kernel_build.built(artefacts.cache, debug=False)
    if folder is None:
        pytest.skip("no kernel of `bluebridge kernel build debian-13`")
    root = tmp_path / "root"
    shutil.copytree(artefacts.folder("guest") / "root", root, symlinks=True)
    (modules,) = (folder / "lib/modules").iterdir()
    shutil.copytree(modules, root / "usr/lib/modules" / modules.name)
    subprocess.run([programs / "depmod", "-b", root, modules.name], check=True)
    return folder / "bzImage", root


@pytest.mark.full
@pytest.mark.parametrize("which", ["debians", "built_here"])
def test_the_lines_of_the_page_reach_the_other_guest(
    bluebridge: Commands, programs: Path, tmp_path: Path, which: str, request: pytest.FixtureRequest
) -> None:
    kernel, root = request.getfixturevalue(which)
    lines = block((ROOT / "docs/your-kernel.md").read_text(), "mkdir hca")
    start = f"PATH={programs}:$PATH\nKERNEL={kernel}\nROOT={root}\nexec 2>&1\n{LIMITED}\n"
    told = bluebridge.shell(start + lines.replace("python3 -m", f"{sys.executable} -m"), tmp_path)
    assert "3 packets transmitted, 3 received" in told, told
    assert "mlx4_0" in told, told
