"""Whatever ends a ConnectX-5's users hard: the card holds what it held after the first load."""

from __future__ import annotations

import json
import time

import pytest

from bluebridge.host_tools.programs.perftest import VERBS_PORT, listening
from tests.models.lab_commands import Commands
from tests.vm.conftest import BOOT_SECONDS
from tests.vm.network import COMPLAINTS

pytestmark = pytest.mark.timeout(2 * BOOT_SECONDS)
PATIENCE = 60
"""Seconds in which mlx5_ib has filled its stock of keys."""
LOADED = "bluebridge-mlx5 10.9.0.1/24"
MODULES = "mlx5_ib mlx5_core"
FUNCTION = "/sys/bus/pci/devices/0000:01:00.0"
PROGRAM = "ib_write_bw -d mlx5_0 -x 2 -s 65536"
ENDLESS = f"{PROGRAM} --run_infinitely"
SENT = "$(cat /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data)"
BUSY = f"before={SENT}; until [ {SENT} -gt $((before + 4000000)) ]; do sleep 0.1; done"
"""Waits until guest a has sent 16 MB more."""


def objects(bluebridge: Commands) -> dict[str, int]:
    """How many objects of each kind guest a's card has.

    Pages of a ring count until Python frees it, which may be later.
    """
    told = json.loads(bluebridge.good("show", "a", "objects", "--json"))["items"][0]
    return {kind: count for kind, count in told.items() if kind not in ("function", "pages")}


def settled(bluebridge: Commands) -> dict[str, int]:
    """How many objects there are when a second changes nothing: the stock of keys is filled."""
    deadline = time.monotonic() + PATIENCE
    now = objects(bluebridge)
    while (before := now) != (now := _later(bluebridge)):
        assert time.monotonic() < deadline, (before, now)
    return now


def _later(bluebridge: Commands) -> dict[str, int]:
    time.sleep(1)
    return objects(bluebridge)


def until_again(bluebridge: Commands, before: dict[str, int]) -> None:
    """Wait until the card holds as many objects as before, and the kernel has not complained."""
    deadline = time.monotonic() + PATIENCE
    while others := objects(bluebridge).items() ^ before.items():
        assert time.monotonic() < deadline, others
        time.sleep(0.2)
    check_messages(bluebridge)


def check_messages(bluebridge: Commands) -> None:
    """Nothing of mlx5 is wrong in what guest a's kernel said since the last look."""
    said = bluebridge.good("run", "a", "dmesg -c").lower().splitlines()
    told = [line for line in said if "mlx5" in line or "call trace" in line]
    assert not [line for line in told if any(word in line for word in COMPLAINTS)]


def between(bluebridge: Commands, words: str, end: str) -> None:
    """Run a program from guest a to guest b; `end` is run in guest a meanwhile."""
    bluebridge.good("run", "b", f"{words} > /dev/null 2>&1 &")
    bluebridge.good("run", "b", f"until {listening(VERBS_PORT)}; do sleep 0.1; done")
    bluebridge.good("run", "a", f"{words} 10.9.0.2 > /dev/null 2>&1 & {end}")


def test_programs_links_and_drivers_end_hard(bluebridge: Commands) -> None:
    bluebridge.good("up", "--driver", "kernel", "--card", "connectx5", "--quiet")
    loaded = settled(bluebridge)
    check_messages(bluebridge)
    between(bluebridge, f"{PROGRAM} -n 20", "wait $!")
    # The queue pair of UMR and its completion queue came with the first registration, and stay.
    used = settled(bluebridge)
    assert used["qp"] == loaded["qp"] + 1
    for _ in range(2):
        between(bluebridge, ENDLESS, f"{BUSY}; kill -9 $!; wait")
        bluebridge.good(
            "run", "b", "killall -9 ib_write_bw; while pidof ib_write_bw; do sleep 0.1; done"
        )
        until_again(bluebridge, used)
    between(
        bluebridge,
        ENDLESS,
        f"{BUSY}; for way in down up down up down up; do ip link set eth0 $way; sleep 0.3; done; "
        "kill -9 $!; wait; ip addr replace 10.9.0.1/24 dev eth0",
    )
    # Where the link went, the program may have found that out by itself.
    bluebridge.good("run", "b", "killall -9 ib_write_bw || true")
    until_again(bluebridge, used)
    for line in (
        f"devlink dev reload pci/0000:01:00.0 && {LOADED}",
        f"modprobe -r {MODULES} && {LOADED}",
        f"modprobe -r {MODULES} && echo 1 > {FUNCTION}/reset && {LOADED}",
    ):
        bluebridge.good("run", "a", line)
        until_again(bluebridge, loaded)
