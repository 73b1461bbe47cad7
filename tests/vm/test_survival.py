"""Guests that are killed and restored, or lose their device server; guests of one snapshot.

Each test has a pair of its own, since it ends a part of it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.host_tools.krping.krping_command import KrpingRequest, run
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.buslog import BusLog

ADDRESS = "addr=192.168.69.127,port=9999"
GONE = "mlx4_0: the device is gone (reads return all ones)"
SOON = 30.0
"""Seconds within which a guest must have noticed; it looks once a second, and VFIO's own reset of a
dead device takes a minute."""
AT_ONCE = 30.0
"""Seconds for a program to start and fail; one that waits for a dead device takes a minute."""
WAIT_FOR_EVENT = """\
from bluebridge.guest.providers import open_device
from bluebridge.guest.bus.vfio import VfioBus
channel = open_device(VfioBus()).create_comp_channel()
print("waiting", flush=True)
channel.get_event()
"""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Two restored guests whose HCAs belong to vfio-pci."""
    with Pair(LabConfig(log=tmp_path)) as lab:
        yield lab


def start(machine: Vm, command: str) -> None:
    """Run a command behind the agent's back; its output and how it ended go to /tmp/said."""
    run = f"({command}; echo ended with $?) > /tmp/said 2>&1 < /dev/null &"
    machine.run(["sh", "-c", f": > /tmp/said; {run}"])


def wait_for(machine: Vm, text: str, timeout: float, command: str = "cat /tmp/said") -> str:
    """Until the output of `command` holds `text`; the output then."""
    deadline = time.monotonic() + timeout
    while text not in (said := machine.run(command).text):
        assert time.monotonic() < deadline, said
        time.sleep(0.1)
    return said


def kill_server(pair: Pair) -> None:
    """SIGKILL; from then on the guests' tools must not mind that it is gone.

    No guest may have a message under way then, or its QEMU goes as well. CPUs are halted, and once
    the server has answered twice it has looked at all sockets in between.
    """
    for machine in pair.machines:
        machine.causes.clear()
        machine.qmp.command("stop")
    for _ in range(2):
        pair.server.tell("status")
    os.kill(pair.server.pid, signal.SIGKILL)
    while pair.server.trouble() is None:
        time.sleep(0.005)
    for machine in pair.machines:
        machine.qmp.command("cont")


def test_guests_of_one_snapshot_are_no_twins(pair: Pair) -> None:
    commands = {
        "hostname": "hostname; cat /proc/sys/kernel/hostname",
        "machine-id": "cat /etc/machine-id",
        "boot id": "cat /proc/sys/kernel/random/boot_id",
        "random numbers": "python3 -c 'import os; print(os.getrandom(16).hex())'",
        "random pool": "cat /proc/sys/kernel/random/uuid; head -c 16 /dev/urandom | od -An -tx1",
    }
    for what, command in commands.items():
        said = [machine.run(command).text for machine in pair.machines]
        assert all(said) and said[0] != said[1], f"{what}: {said}"
    boot_id = pair.a.run(commands["boot id"]).text
    assert boot_id == pair.a.run(commands["boot id"]).text
    for machine in pair.machines:
        assert abs(float(machine.run("date +%s").text) - time.time()) < 5
    _a_guest_restored_later_is_another(pair)


def _a_guest_restored_later_is_another(pair: Pair) -> None:
    """The same guest from the same snapshot twice: nothing of its former self."""
    command = "cat /etc/machine-id /proc/sys/kernel/random/boot_id /proc/sys/kernel/random/uuid"
    before = pair.a.run(command).text.splitlines()
    pair.restart("a")
    after = pair.a.run(command).text.splitlines()
    assert not set(before) & set(after)
    assert abs(float(pair.a.run("date +%s").text) - time.time()) < 5


def test_a_killed_guest_comes_back_to_its_device(pair: Pair) -> None:
    """Killed in the middle of a benchmark: its peer is told, and then works with its successor."""
    bandwidth = f"{ADDRESS},count=1000000,bw"
    start(pair.a, f"python3 -m bluebridge.guest.protocols.krping server,{bandwidth}")
    wait_for(pair.a, "rdma_listen", 60)
    start(pair.b, f"python3 -m bluebridge.guest.protocols.krping client,{bandwidth}")
    BusLog(pair.logs).wait_for(timeout=60, guest="b", containing="RDMA_WRITE signaled")
    os.kill(pair.a.pid, signal.SIGKILL)
    said = wait_for(pair.b, "ended with", 60)  # seven retries of more than a second
    assert "RETRY_EXC_ERR" in said and said.endswith("ended with 1")
    pair.restart("a")
    server, client = f"server,{ADDRESS}", f"client,{ADDRESS},count=20,validate"
    report = run(pair, KrpingRequest.parse(server, client))
    assert report.ok, report


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(
            f"python3 -m bluebridge.guest.protocols.krping server,{ADDRESS}", marks=pytest.mark.long
        ),
        "python3 /tmp/wait.py",
    ],
)
def test_a_guest_whose_server_is_killed_says_so(pair: Pair, command: str) -> None:
    """A krping server without a client, a wait for a completion event; the agent goes on."""
    pair.a.agent.put(WAIT_FOR_EVENT.encode(), "/tmp/wait.py")
    start(pair.a, command)
    wait_for(pair.a, "rdma_listen" if "krping" in command else "waiting", 60)
    kill_server(pair)
    said = wait_for(pair.a, "ended with", SOON).splitlines()
    assert said[-1] == "ended with 1"
    assert said[-2].endswith(GONE)
    client = f"python3 -m bluebridge.guest.protocols.krping client,{ADDRESS}"
    again = pair.a.run(client, timeout=AT_ONCE, check=False)
    assert again.status == 1
    assert again.stderr.endswith(b"the device is gone (reads return all ones)\n")


def test_the_kernels_driver_says_so_too(tmp_path: Path) -> None:
    """mlx4_core takes all ones in the catastrophic error buffer for what it is, and unloads."""
    with Pair(LabConfig(log=tmp_path, vfio=False)) as pair:
        only_core = "for m in mlx4_en mlx4_ib; do echo install $m /bin/true; done"
        pair.a.run(f"mkdir -p /etc/modprobe.d; {only_core} > /etc/modprobe.d/only-core.conf")
        pair.a.run("modprobe mlx4_core")
        kill_server(pair)
        said = wait_for(pair.a, "mlx4_restart_one was ended", 30, "dmesg")
        assert "Internal error detected" in said and "buf[00]: ffffffff" in said
        pair.a.run("rmmod mlx4_core", timeout=30)
        assert "mlx4_core" not in pair.a.run("cat /proc/modules").text
