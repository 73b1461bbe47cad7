"""Guests with a kernel of the user's, from an image and its modules, and files over their root."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from bluebridge.host_tools import cli
from bluebridge.images import kernel_build
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.kernel_config import text
from tests.models.lab_commands import Commands
from tests.unit.images.test_kernel_image import RELEASE, bzimage, elf, modules


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
    over = tmp_path / "over"  # the same each time, so that its snapshot serves again
    (over / "etc").mkdir(parents=True)
    (over / "etc/mine").write_text("laid over\n")
    words = ("--kernel", image, "--modules", modules, "--overlay", str(over))
    bluebridge.good("up", *words, "--card", "connectx3,connectx5", "--driver", "kernel", "--quiet")
    assert bluebridge.good("run", "b", "ls /sys/class/infiniband") == "mlx5_0\n"
    script = "cat /etc/mine; grep -c earlyprintk /proc/cmdline; ls /sys/class/infiniband"
    told = bluebridge.good("run", "a", script)
    # The words of the command line are those of a kernel that is not the usual one.
    assert told.split() == ["laid", "over", "1", "mlx4_0"]
    # A panic ends the command that waits, with the stack.
    completed = bluebridge.run("run", "a", "echo c > /proc/sysrq-trigger; sleep 200")
    errors = completed.stderr.decode()
    assert completed.returncode == 125 and "Call Trace:" in errors, errors
    assert errors.splitlines()[-1].startswith("bluebridge: guest a: the guest's kernel panicked")
    bluebridge.good("down")


ARM = bytes(56) + b"ARM\x64" + bytes(900)
LACKS_MLX4 = f"kernel {RELEASE} lacks CONFIG_MLX4_CORE for the HCA"


@pytest.mark.brief
@pytest.mark.parametrize(
    ("content", "release", "told", "mend"),
    [
        (ARM, "", "is a kernel for arm64, guests are x86-64", "name an x86-64 bzImage"),
        (b"hello", "", "is no kernel image", "name an x86-64 bzImage"),
        (bzimage(elf(text(debug=False))), "", LACKS_MLX4, "set that as `bluebridge kernel config`"),
        (bzimage(elf("CONFIG_PCI=y\n")), "", "CONFIG_DEVTMPFS for its device nodes", "set that"),
        (
            bzimage(elf(text(debug=False))), "6.1.0-50-amd64",
            "modules are of 6.1.0-50-amd64", "`make modules_install INSTALL_MOD_PATH=DIR`",
        ),
    ],
    ids=["arm64", "no kernel", "no modules for the card", "no config", "other modules"],
)  # fmt: skip
def test_what_cannot_be_a_guests_kernel_is_told_before_it_boots(
    bluebridge: Commands, tmp_path: Path, content: bytes, release: str, told: str, mend: str
) -> None:
    image = tmp_path / "bzImage"
    image.write_bytes(content)
    words = ("--modules", str(modules(tmp_path, release))) if release else ()
    begin = time.monotonic()
    _, line = bluebridge.bad("up", "--kernel", str(image), *words, "--driver", "kernel", "--quiet")
    assert told in line.replace(f" in {tmp_path}", "") and mend in line, line
    assert time.monotonic() - begin < 20
    assert bluebridge.good("ps").startswith("nothing runs")


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
def test_a_kernel_that_was_built_here_has_the_adapter(bluebridge: Commands) -> None:
    """`make conformance` builds one, which takes too long for a test of each change."""
    if kernel_build.built(Artefacts().cache, debug=False) is None:
        pytest.skip("no kernel of `bluebridge kernel build debian-13`")
    bluebridge.good("up", "--kernel", "my", "--driver", "kernel", "--quiet")
    told = bluebridge.good(
        "run", "a", "uname -r; ping -q -c 2 10.9.0.2 >&2; ibv_devices | grep -c mlx4"
    )
    bluebridge.good("down")
    release, adapters = told.split()
    assert release.endswith("-my") and adapters == "1"


@pytest.mark.long
@pytest.mark.timeout(2 * 3600)
def test_a_kernel_is_built_from_debians_source() -> None:
    assert cli.main(["kernel", "build", "debian-13"]) == 0


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
