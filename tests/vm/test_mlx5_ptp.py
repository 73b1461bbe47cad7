"""Hardware time stamps and the PTP clock of two ConnectX-5: linuxptp's programs as they are."""

from __future__ import annotations

import re

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.lab.software import GuestSoftware
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.lab import Lab
from tests.vm.network import complaints

LOG = "/tmp/ptp4l.log"
# An emulated guest takes longer than ptp4l's 10 ms to hand a stamp over.
PTP4L = f"ptp4l -i eth0 -m -l 6 --tx_timestamp_timeout 1000 > {LOG} 2>&1 &"
FOLLOWER = PTP4L.replace("-i eth0", "-i eth0 -s")
SECONDS_OFF = 30
MOST_NS = 100_000_000
"""How far apart clocks in step may be: scheduling of emulated guests, far below what was off."""
CAPABILITIES = ("hardware-transmit", "hardware-receive", "hardware-raw-clock")
IN_STEP = "^ptp4l.* s2 "
BROKEN = "FAULTY|timed out"


def offsets(machine: Vm) -> list[int]:
    """The offsets from the master in nanoseconds as ptp4l found them, in order."""
    return [int(each) for each in re.findall(r"master offset +(-?\d+)", log(machine))]


def log(machine: Vm) -> str:
    """The output of ptp4l so far."""
    return machine.run(["cat", LOG]).text


def test_ptp4l_brings_two_clocks_together(lab: Lab) -> None:
    """Stamps of both directions and of both cards are times of the clock that phc_ctl sets."""
    software = GuestSoftware(packages=("linuxptp",))
    options = ServerOptions(card="connectx5")
    with lab.pair(kernel=True, vfio=False, options=options, software=software) as pair:
        a, b = pair.machines
        for machine in pair.machines:
            assert not [line for line in complaints(machine) if "mlx5" in line]
            told = machine.run("ethtool -T eth0").text
            assert "PTP Hardware Clock: 0" in told
            assert [each for each in CAPABILITIES if each not in told] == []
        b.run(f"phc_ctl eth0 adj {SECONDS_OFF}")
        a.run(PTP4L)
        b.run(FOLLOWER)
        done = f"[ $(grep -c '{IN_STEP}' {LOG}) -ge 4 ] || grep -qE '{BROKEN}' {LOG}"
        b.run(f"until {done}; do sleep 0.2; done", timeout=120)
        found = offsets(b)
        assert abs(found[0] - SECONDS_OFF * 10**9) < 5 * 10**9, found
        assert max(abs(each) for each in found[-3:]) < MOST_NS, found
        for machine in pair.machines:
            assert not re.search(BROKEN, log(machine)), log(machine)
            assert not complaints(machine)
