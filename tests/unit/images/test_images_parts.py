"""Parts of images: the probe of KVM, the kernel's package, libvfio-user, errors, cpio archives."""

from __future__ import annotations

import errno
import io
import lzma
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.images import kvm_speed, report
from bluebridge.images.accelerator import REACHED, probe
from bluebridge.images.apt import Packages
from bluebridge.images.artefacts import Qemu
from bluebridge.images.cache import Cache
from bluebridge.images.initramfs import TRAILER, CpioWriter, archive_of
from bluebridge.images.overlay import sources
from bluebridge.images.recipes import libvfio_user
from bluebridge.images.recipes.kernel import (
    PAYLOAD_LENGTH,
    PAYLOAD_OFFSET,
    SETUP_SECTS,
    ModuleTree,
    depends,
    elf_of,
    module_name,
)
from bluebridge.images.report import ImageError, of_system

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


@pytest.mark.skipif(not os.access(kvm_speed.DEVICE, os.R_OK | os.W_OK), reason="no /dev/kvm")
def test_a_loop_without_end_is_no_speed() -> None:
    """A short one ends, interpreted or not; a long one is killed, and nobody waits for it."""
    assert kvm_speed.runs_at_speed(turns=10)
    assert not kvm_speed.runs_at_speed(turns=1 << 62)


def test_a_device_that_is_no_kvm_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(kvm_speed, "DEVICE", tmp_path / "kvm")
    monkeypatch.setattr(sys, "argv", ["kvm_speed", "10"])
    assert kvm_speed.main() == 1
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def image(payload: bytes) -> bytes:
    """A bzImage of three set-up sectors whose protected-mode code holds `payload` at 64."""
    setup = bytearray(4 * 512)
    setup[SETUP_SECTS] = 3
    struct.pack_into("<I", setup, PAYLOAD_OFFSET, 64)
    struct.pack_into("<I", setup, PAYLOAD_LENGTH, len(payload))
    return bytes(setup) + bytes(64) + payload + b"tail"


def module(*needs: str) -> bytes:
    return b"\x7fELF\0license=GPL\0depends=" + ",".join(needs).encode() + b"\0name=x\0"


def test_kernel_is_cut_out_of_its_image() -> None:
    elf = b"\x7fELF" + bytes(100)
    assert elf_of(image(lzma.compress(elf))) == elf


@pytest.mark.parametrize("payload", [b"\x00unknown", lzma.compress(b"no kernel")])
def test_unknown_images_are_refused(payload: bytes) -> None:
    with pytest.raises(ImageError):
        elf_of(image(payload))


def test_a_closure_has_all_dependencies(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "top-most.ko.xz").write_bytes(lzma.compress(module("middle")))
    (tmp_path / "middle.ko").write_bytes(module("low"))
    (tmp_path / "low.ko").write_bytes(module())
    (tmp_path / "other.ko").write_bytes(module())
    found = ModuleTree(tmp_path).closure(["top-most"])
    assert {str(path) for path in found} == {"net/top-most.ko", "middle.ko", "low.ko"}
    assert found[Path("net/top-most.ko")] == module("middle")


def test_missing_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no module absent"):
        ModuleTree(tmp_path).closure(["absent"])


def test_names_use_underscores() -> None:
    assert module_name(Path("a/vfio-pci.ko.xz")) == "vfio_pci"
    assert depends(module("ib-core", "low")) == ["ib_core", "low"]


@pytest.mark.parametrize("name", ["adopt.h", "layout_shim.c"])
def test_another_text_of_what_it_is_compiled_with_is_another_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    (tmp_path / "versions.json").write_text('{"source qemu/trixie": ["qemu.dsc"]}')
    cache = Cache(tmp_path)
    recipe = libvfio_user.LibvfioUserRecipe(cache, Packages(cache))
    before = recipe.key()
    assert recipe.key() == before
    (file,) = [path for path in (libvfio_user.ADOPT, libvfio_user.SHIM) if path.name == name]
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b" " * (path == file))
    assert recipe.key() != before


ROOT = Path(__file__).parents[3]
UNREACHABLE = """\
WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(...)'
ERROR: Could not find a version that satisfies the requirement setuptools>=68
ERROR: No matching distribution found for setuptools>=68
"""


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (errno.ENOSPC, "the disk of /x is full; to mend it: free some space"),
        (errno.EDQUOT, "the disk of /x is full; to mend it: free some space"),
        (errno.EACCES, "cannot write /x: Permission denied; to mend it: set BLUEBRIDGE_CACHE"),
        (errno.EROFS, "cannot write /x: Read-only file system; to mend it: set BLUEBRIDGE_CACHE"),
        (errno.ENOMEM, "out of memory; to mend it: end other programs"),
        (errno.EMFILE, "Too many open files; to mend it: raise the limit"),
        (errno.EIO, "/x: Input/output error; to mend it: "),
    ],
)
def test_each_oserror_names_its_remedy(number: int, line: str) -> None:
    told = str(of_system(OSError(number, os.strerror(number)), "/x"))
    assert line in told
    assert "\n" not in told


@pytest.mark.parametrize("command", ["build", "refresh"])
def test_an_impossible_cache_is_one_line(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "bluebridge.images", command],
        cwd=ROOT,
        env={**os.environ, "BLUEBRIDGE_CACHE": str(tmp_path / "file" / "below")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Not a directory; to mend it: set BLUEBRIDGE_CACHE" in done.stderr


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (UNREACHABLE, "the package index cannot be reached; to mend it: check the network"),
        ("NewConnectionError [SSL: CERTIFICATE_VERIFY_FAILED] x\n", "certificates in PIP_CERT"),
        ("noise\nERROR: No matching distribution found for rich>=13\n", "found for rich>=13"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("", "exit status 2"),
    ],
)
def test_pips_failure_is_one_line(output: str, line: str) -> None:
    told = str(report.failure("installing Python packages", output, 2))
    assert line in told
    assert "\n" not in told


HEADER = 110
NAMES = st.text("abcdefgh._-/", min_size=1, max_size=40)
Entry = tuple[int, bytes]


def read(archive: bytes) -> dict[str, Entry]:
    """Entries of a newc archive: mode and contents by name; checks magic, padding and trailer."""
    entries: dict[str, Entry] = {}
    at = 0
    while True:
        assert archive[at : at + 6] == b"070701"
        words = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, length = words[1], words[6], words[11]
        name = archive[at + HEADER : at + HEADER + length]
        assert name.endswith(b"\0")
        start = at + HEADER + length
        start += -start % 4
        content = archive[start : start + size]
        at = start + size + -size % 4
        if name[:-1].decode() == TRAILER:
            assert at == len(archive)
            return entries
        entries[name[:-1].decode()] = (mode, content)


@given(st.dictionaries(NAMES, st.binary(max_size=50)))
def test_files_come_back(files: dict[str, bytes]) -> None:
    stream = io.BytesIO()
    writer = CpioWriter(stream)
    for name, content in files.items():
        writer.file(name, content, 0o640)
    writer.close()
    expected = {name: (stat.S_IFREG | 0o640, content) for name, content in files.items()}
    assert read(stream.getvalue()) == expected


def test_tree_keeps_kinds_and_modes(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir(mode=0o755)
    (tmp_path / "bin" / "tool").write_bytes(b"#!")
    (tmp_path / "bin" / "tool").chmod(0o755)
    (tmp_path / "link").symlink_to("bin/tool")
    assert read(archive_of(tmp_path)) == {
        "bin": (stat.S_IFDIR | 0o755, b""),
        "bin/tool": (stat.S_IFREG | 0o755, b"#!"),
        "link": (stat.S_IFLNK | 0o777, b"bin/tool"),
    }


def test_device_nodes_carry_their_numbers() -> None:
    stream = io.BytesIO()
    CpioWriter(stream).character_device("dev/console", 5, 1)
    header = stream.getvalue()
    assert [int(header[6 + 8 * i : 14 + 8 * i], 16) for i in (1, 9, 10)] == [0o20600, 5, 1]


def test_guest_gets_the_tables_of_the_device_and_none_of_its_code() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in sources(ROOT)}
    wanted = {"guest/bus/interface.py", "device/__init__.py", "device/layout/fields.py"}
    assert {f"bluebridge/{name}" for name in wanted} <= names
    others = ("device/mlx4", "device/rdma", "device/ethernet", "host_tools")
    assert not any(
        name.startswith(tuple(f"bluebridge/{room}" for room in others)) for name in names
    )
