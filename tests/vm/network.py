"""Two guests on mlx4_en: what the tests of the Ethernet side ask of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.perftest import IPERF_PORT, listening

PATIENCE = 20.0
CARRIER = "/sys/class/net/eth0/carrier"
ECHOES = 3


def number(machine: Vm) -> int:
    """1 for the first guest, 2 for the second: the last part of its addresses."""
    return 1 + "ab".index(machine.name[0])


def address(machine: Vm) -> str:
    """The IPv4 address of a guest's port."""
    return f"10.9.0.{number(machine)}"


def bring_up(machine: Vm) -> None:
    """The kernel's drivers on the HCA, an address on its network device, a link."""
    machine.run(["bluebridge-mlx4", f"{address(machine)}/24"], timeout=120)


def peer(pair: Pair, machine: Vm) -> Vm:
    """The other guest."""
    return pair.b if machine is pair.a else pair.a


def ping(machine: Vm, target: str, *options: str) -> None:
    """A few echoes, all answered."""
    pings.check(machine, target, f"-c {ECHOES} -i 0.1 {' '.join(options)}")


def set_mtu(pair: Pair, mtu: int) -> None:
    """In both guests; ends when both links are back."""
    for machine in pair.machines:
        machine.run(f"ip link set eth0 mtu {mtu}; until grep -q 1 {CARRIER}; do sleep 0.1; done")


def serve_iperf3(server: Vm) -> None:
    """A server for one client, which listens already.

    The one before may still hold the port, and one that finds it taken ends without a word.
    """
    taken = listening(IPERF_PORT)
    server.run(
        f"while {taken}; do sleep 0.05; done; until {taken}; do iperf3 -s -1 -D; sleep 0.1; done",
        timeout=60,
    )


def iperf3(client: Vm, server: Vm, *options: str, seconds: int = 3) -> dict[str, Any]:
    """Return what `iperf3 --json` says on the client."""
    serve_iperf3(server)
    words = ["iperf3", "-c", address(server), "-t", str(seconds), "--json", *options]
    done = client.run(words, timeout=60 + seconds, check=False)
    assert done.status == 0, done.text
    report: dict[str, Any] = json.loads(done.text)
    return report


def statistics(machine: Vm) -> dict[str, int]:
    """`ethtool -S` of the port."""
    counts: dict[str, int] = {}
    for line in machine.run(["ethtool", "-S", "eth0"]).text.splitlines():
        name, _, value = line.strip().partition(": ")
        if value.isdecimal():
            counts[name] = int(value)
    return counts


def received(machine: Vm) -> int:
    """How many frames the port's rings have brought so far, as their driver counts them."""
    return int(machine.run("cat /sys/class/net/eth0/statistics/rx_packets").text)


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for something that takes the driver a moment."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "in vain"


def snmp(machine: Vm, protocol: str, name: str) -> int:
    """A counter of /proc/net/snmp."""
    lines = machine.run(["cat", "/proc/net/snmp"]).text.splitlines()
    names, values = (line.split() for line in lines if line.startswith(f"{protocol}: "))
    return int(values[names.index(name)])


COMPLAINTS = ("fail", "error", "timeout", "timed out", "warn", "unable", "call trace", "bug:")


def complaints(machine: Vm) -> list[str]:
    """Kernel lines since the last look about something that went wrong; they are cleared."""
    lines = machine.run("dmesg -c").text.splitlines()
    return [line for line in lines if any(word in line.lower() for word in COMPLAINTS)]
