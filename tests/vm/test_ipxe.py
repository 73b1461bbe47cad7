"""Debian's iPXE on the emulated HCA: its port comes up; it boots a guest from the other one."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from bluebridge.host_tools.errors import Reporter
from bluebridge.host_tools.lab import network_boot
from bluebridge.host_tools.lab.artefacts import network_boot_files
from bluebridge.host_tools.lab.network_boot import watched
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.lab import Lab
from tests.models.lab_commands import Commands
from tests.vm.conftest import BOOT_SECONDS

LINK_UP = "the link is up"
SCRIPT = f"""\
#!ipxe
iflinkwait --timeout 60000 net0 && echo {LINK_UP} || echo no link
ifstat net0
"""


def _wait_for(machine: Vm, text: str) -> str:
    """The transcript up to `text` and the end of its line, once the firmware printed it."""
    deadline = time.monotonic() + BOOT_SECONDS
    while True:
        found = re.search(f"(?s).*{text}\r?\n", machine.transcript.read_text(errors="replace"))
        if found:
            return found[0]
        if (trouble := machine.alarms[-1]()) is not None:
            raise trouble
        assert time.monotonic() < deadline, f"iPXE did not print {text}"
        time.sleep(0.1)


@pytest.mark.brief
def test_its_port_comes_up(lab: Lab, tmp_path: Path) -> None:
    script = tmp_path / "up.ipxe"
    script.write_text(SCRIPT)
    files = network_boot_files(Reporter(quiet=True))
    with lab.pair(vfio=False) as pair:
        machine = pair.a
        machine.stop()
        machine.power_on(network_boot.start(pair.config, files, script))
        machine.attach()
        with watched(machine):
            machine.release()
            said = _wait_for(machine, LINK_UP)
        assert "iPXE" in said


def test_a_pair_that_cannot_goes_on(bluebridge: Commands) -> None:
    bluebridge.good("up", "--bare", "--quiet")
    status, line = bluebridge.bad("boot", "a", "--pxe")
    assert (status, "bluebridge up --driver kernel" in line) == (2, True), "before any download"
    assert bluebridge.good("run", "a", "echo still there") == "still there\n"


@pytest.mark.long
@pytest.mark.parametrize("link", ["ethernet", "infiniband"])
def test_it_boots_a_guest_whose_kernel_then_has_the_hca(bluebridge: Commands, link: str) -> None:
    bluebridge.good("up", "--driver", "kernel", "--link", link, "--quiet")
    said = bluebridge.good("boot", "a", "--pxe", "--quiet")
    assert re.fullmatch(r"guest a booted over its HCA in \d+\.\d s\n", said)
    assert "initrd=root.zst" in bluebridge.good("run", "a", "cat /proc/cmdline")
    assert "[15b3:673c]" in bluebridge.good("run", "a", "lspci -nn -d 15b3:")
    assert " 3 received" in bluebridge.good("run", "a", "ping -c 3 -w 30 10.9.0.2")
    assert " 3 received" in bluebridge.good("run", "b", "ping -c 3 -w 30 10.9.0.1")

    assert bluebridge.good("restart", "a", "--quiet") == "guest a is up again\n"
    assert "[15b3:1003]" in bluebridge.good("run", "a", "lspci -nn -d 15b3:")


@pytest.mark.long
def test_firmware_without_a_server_says_so(bluebridge: Commands) -> None:
    """Nobody answers whose cable is out: the command ends, and with it the guest."""
    bluebridge.good("up", "--driver", "kernel", "--quiet")
    bluebridge.good("link", "b", "down")
    status, line = bluebridge.bad("boot", "a", "--pxe", "--quiet")
    assert (status, "iPXE did not boot it" in line) == (1, True)
    assert "did not restart" in bluebridge.good("ps")
    bluebridge.good("link", "b", "up")
    assert "booted over its HCA" in bluebridge.good("boot", "a", "--pxe", "--quiet")
