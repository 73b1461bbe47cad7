"""Guests that start from a snapshot: quick, whole, and never the worse for a bad one."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bluebridge.host_tools.errors import LabError, Reporter
from bluebridge.host_tools.lab import folders, snapshot
from bluebridge.host_tools.lab.artefacts import ensure_artefacts
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.qemu_arguments import ROOT_PORTS, WIDE_PORT, GuestSize
from bluebridge.host_tools.machine.vm import Vm, VmConfig
from bluebridge.host_tools.pytest_plugin.lab import Lab
from bluebridge.images.cache import Snapshot

pytestmark = pytest.mark.shared_pair
HCA = "15b3:1003"
GIB = 1 << 30


@pytest.fixture
def own_snapshot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Snapshot]:
    """A snapshot only this test has; the cache's other artefacts are the usual ones."""
    parts = ensure_artefacts(Reporter(quiet=True))
    usual = snapshot.ensure(parts, GuestSize(), Reporter(quiet=True))
    own = Snapshot("test", ("test", os.getpid(), str(tmp_path)))

    def copy(state: Path) -> None:
        subprocess.run(["cp", "--sparse=always", usual.state, state], check=True)

    own.ensure(copy)
    monkeypatch.setattr(snapshot, "snapshot_of", lambda parts, size: own)
    yield own
    own.discard()


@pytest.mark.brief
def test_each_guest_has_its_hca_with_its_driver(pair: Pair) -> None:
    assert not pair.warnings
    for machine in pair.machines:
        assert machine.run("hostname").text == machine.name
        function = machine.function(0)
        assert function is not None
        assert (function["id"], function["driver"]) == (HCA, "vfio-pci")


@pytest.mark.brief
def test_their_qemus_are_confined(pair: Pair) -> None:
    for machine in pair.machines:
        status = Path(f"/proc/{machine.pid}/status").read_text()
        assert "NoNewPrivs:\t1\n" in status
        assert "Seccomp:\t2\n" in status


def test_the_console_of_a_restored_guest_works(pair: Pair) -> None:
    assert pair.b.console.run("echo $((6 * 7))") == "42"


def test_there_are_ports_for_what_is_still_to_come(pair: Pair) -> None:
    listed = pair.a.run("lspci").text
    assert listed.count("PCIe Root port") == ROOT_PORTS >= 5


def test_a_bar_of_four_gib_can_be_plugged_in(pair: Pair) -> None:
    """QEMU's own shared-memory device stands in for a bridge with so large a window."""
    machine = pair.a
    memory = {"qom_type": "memory-backend-memfd", "id": "wide", "size": 4 * GIB, "share": True}
    machine.qmp.command("object-add", **memory)
    device = {"driver": "ivshmem-plain", "id": "wide-device", "memdev": "wide"}
    machine.qmp.command("device_add", **device, bus=f"port{WIDE_PORT}")
    deadline = time.monotonic() + 30
    while (function := machine.function(WIDE_PORT)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    placed = f"lspci -vs {function['address']} | grep 'Memory at [0-9a-f]* .*size=4G'"
    lines = machine.run(f"until {placed}; do :; done").text
    address = int(lines.split()[2], 16)
    assert address >= 4 * GIB and address % (4 * GIB) == 0
    last = machine.run(
        ["python3", "-c", _TOUCH, f"/sys/bus/pci/devices/{function['address']}/resource2"]
    )
    assert last.text.split() == ["beginning", "end"]


_TOUCH = """
import mmap, os, sys
with open(sys.argv[1], "r+b") as bar:
    size = os.fstat(bar.fileno()).st_size
    for place, word in ((0, b"beginning"), (size - 4096, b"end")):
        with mmap.mmap(bar.fileno(), 4096, offset=place) as page:
            page[:len(word)] = word
    for place, word in ((0, b"beginning"), (size - 4096, b"end")):
        with mmap.mmap(bar.fileno(), 4096, offset=place) as page:
            print(page[:len(word)].decode(), end=" ")
"""


def test_a_restarted_guest_is_new_and_its_peer_goes_on(pair: Pair) -> None:
    server = pair.server.pid
    pair.a.run("touch /tmp/mark")
    pair.b.run("touch /tmp/mark")
    pair.restart("a")
    assert pair.a.run("test -e /tmp/mark", check=False).status == 1
    pair.b.run("test -e /tmp/mark")
    assert pair.server.pid == server
    function = pair.a.function(0)
    assert function is not None and function["driver"] == "vfio-pci"


@pytest.mark.may_crash
def test_a_guest_that_panicked_comes_back(pair: Pair) -> None:
    with pytest.raises(LabError, match=r"kernel panicked.*console-a\.log"):
        pair.a.run("echo c > /proc/sysrq-trigger", timeout=60)
    pair.b.run("true")
    pair.restart("a")
    assert pair.a.run("hostname").text == "a"


def _damage(state: Path, kind: str) -> None:
    with state.open("r+b") as stream:
        if kind == "garbage":
            stream.write(os.urandom(1 << 20))
        else:
            stream.truncate(0 if kind == "empty" else state.stat().st_size // 2)


@pytest.mark.parametrize(
    "damage", [pytest.param("empty", marks=pytest.mark.long), "cut", "garbage"]
)
def test_no_guest_starts_from_a_bad_snapshot(
    own_snapshot: Snapshot, tmp_path: Path, damage: str
) -> None:
    """Whatever is wrong with it: QEMU ends, which is what `Pair` mends by a cold boot."""
    _damage(own_snapshot.state, damage)
    with folders.run_folder() as folder:
        parts = ensure_artefacts(Reporter(quiet=True))
        machine = Vm(VmConfig("a", GuestSize()), parts.emulator, folder, tmp_path)
        try:
            machine.power_on(None)
            machine.attach()
            with pytest.raises(LabError, match=r"guest a: QEMU ended with status 1: .*migration"):
                machine.load(own_snapshot.state)
            assert not machine.was_killed()
        finally:
            machine.stop()


def test_a_bad_snapshot_is_thrown_away(own_snapshot: Snapshot, lab: Lab) -> None:
    """The guests boot cold, a line says so, and the next lab makes a new one."""
    _damage(own_snapshot.state, "cut")
    with lab.pair() as pair:
        assert [machine.run("hostname").text for machine in pair.machines] == ["a", "b"]
        (line,) = pair.warnings
        assert "thrown away, cold boot" in line
        function = pair.b.function(0)
        assert function is not None and function["driver"] == "vfio-pci"
    assert not own_snapshot.folder.exists()


def test_the_key_follows_image_machine_and_emulator() -> None:
    parts = ensure_artefacts(Reporter(quiet=True))
    usual = snapshot.snapshot_of(parts, GuestSize())
    assert usual.folder == snapshot.snapshot_of(parts, GuestSize()).folder
    assert usual.folder != snapshot.snapshot_of(parts, GuestSize(memory_mib=512)).folder
    assert usual.folder != snapshot.snapshot_of(parts, GuestSize(hugepages=8)).folder
    other = type(parts.emulator)(
        parts.emulator.argv, parts.emulator.env, parts.emulator.accelerator, "another build"
    )
    changed = type(parts)(other, parts.kernel, parts.initrd, parts.library)
    assert usual.folder != snapshot.snapshot_of(changed, GuestSize()).folder


def test_the_key_does_not_follow_where_the_cache_is() -> None:
    """An imported cache may be anywhere."""
    parts = ensure_artefacts(Reporter(quiet=True))
    emulator = replace(parts.emulator, argv=("/elsewhere/qemu", "-L", "/elsewhere"))
    moved = replace(parts, emulator=emulator)
    usual = snapshot.snapshot_of(parts, GuestSize())
    assert usual.folder == snapshot.snapshot_of(moved, GuestSize()).folder
