"""Guests with a kernel of the user's, from an image and its modules, and files over their root."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from bluebridge.images.artefacts import Artefacts
from tests.models.lab_commands import PATIENCE, Commands

pytestmark = pytest.mark.timeout(3 * PATIENCE)


@pytest.fixture(scope="module")
def kernel() -> tuple[str, str]:
    """The paths of Debian's kernel, as a user has it in /boot, and of what holds its modules."""
    artefacts = Artefacts()
    root = artefacts.folder("kernel") / "root"
    (image,) = root.glob("boot/vmlinuz-*")
    return str(image), str(root)


@pytest.mark.brief
def test_a_kernel_from_a_file_runs_with_files_over_the_root(
    bluebridge: Commands, kernel: tuple[str, str], tmp_path: Path
) -> None:
    image, modules = kernel
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/mine").write_text("laid over\n")
    words = ("--kernel", image, "--modules", modules, "--overlay", str(tmp_path))
    bluebridge.good("up", *words, "--driver", "kernel", "--quiet")
    script = "cat /etc/mine; grep -c earlyprintk /proc/cmdline; ls /sys/class/infiniband"
    told = bluebridge.good("run", "a", script)
    # The words of the command line are those of a kernel that is not the usual one.
    assert told.split() == ["laid", "over", "1", "mlx4_0"]
    bluebridge.good("down")


@pytest.mark.full
@pytest.mark.parametrize("name", ["6.1", "backports"])
def test_other_kernels_of_debian_have_the_adapter(bluebridge: Commands, name: str) -> None:
    bluebridge.good("up", "--kernel", name, "--driver", "kernel", "--quiet")
    told = bluebridge.good(
        "run", "a", "uname -r; ping -q -c 2 10.9.0.2 >&2; ibv_devices | grep -c mlx4"
    )
    bluebridge.good("down")
    release, adapters = told.split()
    assert (release.startswith("6.1.") or name != "6.1") and adapters == "1"


@pytest.mark.full
def test_a_kernel_that_panics_shows_its_stack(
    bluebridge: Commands, kernel: tuple[str, str]
) -> None:
    # In so little memory there is no room for the guests' root.
    completed = bluebridge.run(
        *("up", "--kernel", kernel[0], "--modules", kernel[1], "--driver", "none"),
        *("--memory", "256", "--quiet"),
    )
    errors = completed.stderr.decode()
    assert completed.returncode == 1 and "Call Trace:" in errors, errors
    assert errors.splitlines()[-1].startswith("bluebridge: guest s: the guest's kernel")
    assert bluebridge.good("ps").startswith("nothing runs")


@pytest.mark.full
def test_a_kernel_that_hangs_is_told_in_a_line(bluebridge: Commands, tmp_path: Path) -> None:
    image = tmp_path / "vmlinux"
    image.write_bytes(_spinning_kernel())
    begin = time.monotonic()
    completed = bluebridge.run("up", "--kernel", str(image), "--driver", "none", "--quiet")
    errors = completed.stderr.decode()
    assert completed.returncode == 1 and "its kernel hangs" in errors, errors
    assert time.monotonic() - begin < 120  # 20 on an idle machine
    assert bluebridge.good("ps").startswith("nothing runs")


def _spinning_kernel() -> bytes:
    """An ELF kernel whose first instruction jumps to itself."""
    start, address = 0x1000, 0x100000
    code = b"\xeb\xfe" + b"Linux version 6.99.0-spins (me) \0"
    note = struct.pack("<III", 4, 4, 18) + b"Xen\0" + struct.pack("<I", address)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", ident, 2, 62, 1, address, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, start, address, address, len(code), len(code), 0x1000)
    told = struct.pack("<IIQQQQQQ", 4, 4, 176, 0, 0, len(note), len(note), 4)
    return (header + load + told + note).ljust(start, b"\0") + code
