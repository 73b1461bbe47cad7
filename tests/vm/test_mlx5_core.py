"""The unmodified mlx5_core of the guest's kernel on the emulated ConnectX-5."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.analyzer.activity import ActivityKind, activities
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.buslog import BusLog
from tests.vm.conftest import BOOT_SECONDS

pytestmark = [
    pytest.mark.timeout(2 * BOOT_SECONDS),
    pytest.mark.devices("hca", card="connectx5", vfio=False),
    pytest.mark.shared_pair,
]
LOADS = 2
FIRMWARE = "16.35.4030"
COMPLAINT = re.compile(
    r"mlx5.*(fail|err|time.?out|recovered|health|syndrome|warn|unable|missing|bad )|call trace",
    re.IGNORECASE,
)
NAMELESS = re.compile(r"BAR0\+0x|^other|^0x|^config 0x|^[a-z ]+ 0x[0-9a-f]+$")


def load(machine: Vm) -> str:
    """Load mlx5_core; return what the kernel said, in which nothing is wrong."""
    machine.run("dmesg -c > /dev/null; modprobe mlx5_core", timeout=120)
    said = machine.run("dmesg").text
    assert not [line for line in said.splitlines() if COMPLAINT.search(line)], said
    return said


def unload(machine: Vm) -> None:
    """Unload mlx5_core, without a word of the kernel."""
    machine.run("dmesg -c > /dev/null; rmmod mlx5_core", timeout=120)
    said = machine.run("dmesg").text
    assert not [line for line in said.splitlines() if COMPLAINT.search(line)], said


def test_loads_and_unloads(guest_a: Vm) -> None:
    """Commands are told by events: without their interrupts one takes a minute."""
    for _ in range(LOADS):
        said = load(guest_a)
        assert f"firmware version: {FIRMWARE}" in said
        line = guest_a.run("grep mlx5_async /proc/interrupts").text.split()
        assert int(line[1]) + int(line[2]) > 0
        unload(guest_a)
    load(guest_a)
    guest_a.run(
        "devlink dev reload pci/$(cd /sys/bus/pci/drivers/mlx5_core; ls -d 0*)", timeout=120
    )
    said = guest_a.run("dmesg").text
    assert said.count(f"firmware version: {FIRMWARE}") == 2
    assert not [line for line in said.splitlines() if COMPLAINT.search(line)], said
    unload(guest_a)


def test_devlink_tells_the_firmware(guest_a: Vm) -> None:
    load(guest_a)
    told = guest_a.run("devlink dev info").text
    assert f"fw.version {FIRMWARE}" in told and "fw.psid BB_CX5_A1" in told
    unload(guest_a)


def test_every_record_of_a_bring_up_has_a_name(pair: Pair, buslog: BusLog) -> None:
    begin = buslog.now()
    load(pair.a)
    unload(pair.a)
    pair.server.tell("mark loaded")
    reader = LogReader(Path(pair.log_name))
    events = list(reader.events(Filter(since=begin, device="a")))
    commands = [each for each in events if each.kind is Kind.COMMAND]
    assert len(commands) > 40
    assert {each.values["status"] for each in commands} == {"OK"}
    # What the bus driver reads of every function has no name in the specification either.
    own = [each for each in events if each.kind is not Kind.CONFIG_READ]
    assert not [line for line in map(decode, own) if NAMELESS.search(line)]
    found = [each for each in activities(reader, Filter(since=begin)) if each.device == "a"]
    carried = [each for each in found if each.kind is ActivityKind.COMMAND]
    assert len(carried) == len(commands)
    # One on a key is one record, beside its doorbell and what tells that it is done.
    others = [each for each in carried if "MKEY" not in each.title]
    assert others != carried
    assert all(len(each.transactions) >= 5 for each in others)


def test_a_dead_adapter_recovers(guest_a: Vm, pair: Pair) -> None:
    """The driver finds the interface down within seconds, and starts the adapter again."""
    load(guest_a)
    pair.server.tell("fault a for a test")
    for said in ("Fatal error", "health recovery succeeded"):
        guest_a.run(f"until dmesg | grep -q '{said}'; do sleep 0.5; done", timeout=120)
    assert guest_a.run("dmesg").text.count(f"firmware version: {FIRMWARE}") == 2
    unload(guest_a)
