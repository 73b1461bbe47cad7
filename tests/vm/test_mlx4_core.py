"""The unmodified mlx4_core of the guest's kernel on the emulated function."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.host_tools.analyzer.activity import ActivityKind, activities
from bluebridge.host_tools.analyzer.analysis import Role
from bluebridge.host_tools.analyzer.timeline import timeline
from bluebridge.host_tools.analyzer.views.view import Options
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.buslog import BusLog
from tests.models.trace_reader import TraceReader
from tests.vm.network import bring_up

pytestmark = [pytest.mark.devices("hca", vfio=False), pytest.mark.shared_pair]
LOADS = 2
"""The program `unload and load mlx4 20 times` of the conformance run does it more often."""


@pytest.fixture
def only_core(pair: Pair) -> Pair:
    """mlx4_en and mlx4_ib stay away when mlx4_core asks for them."""
    for machine in pair.machines:
        machine.run(
            "mkdir -p /etc/modprobe.d; for m in mlx4_en mlx4_ib; do "
            "echo install $m /bin/true; done > /etc/modprobe.d/only-core.conf"
        )
    return pair


def _load_and_unload(machine: Vm) -> None:
    console = machine.console
    for _ in range(LOADS):
        console.run("dmesg -c > /dev/null; modprobe mlx4_core", timeout=120)
        said = console.run("dmesg")
        assert "mlx4_core" in said
        bad = [line for line in said.splitlines() if _complains(line)]
        assert not bad, said
        driver = console.run(
            "basename $(readlink /sys/bus/pci/devices/$(lspci -Dn -d 15b3:1003 "
            "| cut -d' ' -f1)/driver)"
        )
        assert driver == "mlx4_core"
        # Number of times it came on either CPU: mlx4_core ran commands by event.
        line = console.run("grep mlx4 /proc/interrupts").split()
        assert int(line[1]) + int(line[2]) > 0
        console.run("rmmod mlx4_core", timeout=120)
        assert "mlx4_core" not in console.run("lsmod")
        assert not [line for line in console.run("dmesg").splitlines() if _complains(line)]


def _complains(line: str) -> bool:
    """Whether a kernel line is about something that went wrong in the driver."""
    words = (
        "fail",
        "error",
        "timeout",
        "timed out",
        "warn",
        "unable",
        "could not",
        "call trace",
        "nop command",
        "bad ",
    )
    lowered = line.lower()
    return ("mlx4" in lowered or "trace" in lowered) and any(word in lowered for word in words)


@pytest.mark.brief
def test_loads_and_unloads_in_both_guests(only_core: Pair) -> None:
    """Twice each, side by side; a NOP whose interrupt does not come fails the probe."""
    only_core.both(_load_and_unload)


def test_all_of_a_bring_up_is_in_the_model_of_the_bus(pair: Pair, buslog: BusLog) -> None:
    """From the probe until the port is active: each event is in one activity, with its cause."""
    pair.a.run("rm -f /etc/modprobe.d/only-core.conf; modprobe -r mlx4_en mlx4_ib mlx4_core")
    begin = buslog.now()
    bring_up(pair.a)
    active = buslog.wait_for(
        lambda record: record.time > begin, guest="a", matching="kind=link and link=up"
    )
    reader = LogReader(Path(pair.log_name))
    wanted = Filter(since=begin, until=active.time)
    count = sum(1 for _ in reader.events(wanted))
    found = list(activities(reader, wanted))
    parts = [part for each in found for part in each.transactions if not part.repeated]
    assert len({part.number for part in parts}) == len(parts)
    assert sum(part.stores for part in parts) == count > 1000
    commands = [each for each in found if each.kind is ActivityKind.COMMAND]
    assert len(commands) > 50
    assert all(len(each.transactions) > 7 for each in commands)
    assert [each.status for each in commands].count("") <= 1  # that which opens the port
    assert any(each.kind is ActivityKind.RESET for each in found)
    interrupts = [
        (each, part) for each in found for part in each.transactions if part.role is Role.INTERRUPT
    ]
    assert interrupts
    assert all(part.parent is not None or each.cause is not None for each, part in interrupts)
    pieces: list[bytes] = []
    timeline.write(reader, Options(wanted), pieces.append)
    shown = TraceReader(b"".join(pieces)).events()
    assert shown == {event.number for event in reader.events(wanted)}


def test_lspci_is_complete_and_content(guest_a: Vm) -> None:
    shown = guest_a.run("lspci -vvv -d 15b3:1003 2>&1").text
    for part in ("Region 0: Memory at", "Region 2: Memory at", "MSI-X: Enable", "Express"):
        assert part in shown
    assert "Power Management" in shown
    for complaint in (
        "<access denied>",
        "unassigned",
        "!!!",
        "lspci:",
        "<chain looped>",
        "ignored",
    ):
        assert complaint not in shown, shown


def test_the_kernel_drivers_ping_each_other(pair: Pair) -> None:
    """mlx4_en brings the link up and moves frames; mlx4_ib finds an active port on top of it."""
    pair.both(_bring_up)
    pings.check(pair.a, "10.9.0.2", "-c 5 -i 0.2")
    for machine in pair.machines:
        state = machine.console.run("cat /sys/class/infiniband/mlx4_0/ports/1/state")
        assert "ACTIVE" in state
        machine.console.run("modprobe -r mlx4_ib mlx4_en mlx4_core", timeout=120)
        dmesg = machine.console.run("dmesg")
        assert not [line for line in dmesg.splitlines() if "Call Trace" in line], dmesg


def _bring_up(machine: Vm) -> None:
    console = machine.console
    number = 1 + "ab".index(machine.name)
    console.run("rm -f /etc/modprobe.d/only-core.conf; modprobe mlx4_en", timeout=120)
    console.run("modprobe mlx4_ib", timeout=120)
    console.run(
        "D=$(basename /sys/bus/pci/drivers/mlx4_core/*:*/net/*); "
        f"ip addr add 10.9.0.{number}/24 dev $D && ip link set $D up; "
        "until grep -q 1 /sys/class/net/$D/carrier; do sleep 0.1; done; "
        "until grep -q ACTIVE /sys/class/infiniband/mlx4_0/ports/1/state; do sleep 0.1; done",
        timeout=60,
    )
