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


def objects(bluebridge: Commands) -> dict[str, int]:
    """How many objects of each kind guest a's card has.

    Pages of a ring count until Python frees it, which may be later.
    """
    told = json.loads(bluebridge.good("show", "a", "objects", "--json"))["items"][0]
    return {kind: count for kind, count in told.items() if kind not in ("function", "pages")}


def until_again(bluebridge: Commands, before: dict[str, int]) -> None:
    """Wait until the card holds as many objects as before, and the kernel has not complained."""
    deadline = time.monotonic() + PATIENCE
    while others := objects(bluebridge).items() ^ before.items():
        assert time.monotonic() < deadline, others
        time.sleep(0.2)
    said = bluebridge.good("run", "a", "dmesg -c").lower().splitlines()
    assert not [line for line in said if any(word in line for word in COMPLAINTS)]


def between(bluebridge: Commands, words: str, end: str) -> None:
    """Run a program from guest a to guest b; `end` is run in guest a meanwhile."""
    bluebridge.good("run", "b", f"{words} > /dev/null 2>&1 &")
    bluebridge.good("run", "b", f"until {listening(VERBS_PORT)}; do sleep 0.1; done")
    bluebridge.good("run", "a", f"{words} 10.9.0.2 > /dev/null 2>&1 & {end}")


def test_programs_links_and_drivers_end_hard(bluebridge: Commands) -> None:
    bluebridge.good("up", "--driver", "kernel", "--card", "connectx5", "--quiet")
    loaded = objects(bluebridge)
    bluebridge.good("run", "a", "dmesg -c")
    between(bluebridge, f"{PROGRAM} -n 20", "wait $!")
    # The queue pair of UMR and its completion queue came with the first registration, and stay.
    time.sleep(1)
    used = objects(bluebridge)
    assert used["qp"] == loaded["qp"] + 1
    for _ in range(2):
        between(bluebridge, ENDLESS, "sleep 2; kill -9 $!; wait")
        bluebridge.good("run", "b", "killall -9 ib_write_bw; while pidof ib_write_bw; do :; done")
        until_again(bluebridge, used)
    between(
        bluebridge,
        ENDLESS,
        "for way in down up down up down up; do ip link set eth0 $way; sleep 0.3; done; "
        "kill -9 $!; wait; ip addr replace 10.9.0.1/24 dev eth0",
    )
    bluebridge.good("run", "b", "killall -9 ib_write_bw")
    until_again(bluebridge, used)
    for line in (
        f"devlink dev reload pci/0000:01:00.0 && {LOADED}",
        f"modprobe -r {MODULES} && {LOADED}",
        f"modprobe -r {MODULES} && echo 1 > {FUNCTION}/reset && {LOADED}",
    ):
        bluebridge.good("run", "a", line)
        until_again(bluebridge, loaded)
