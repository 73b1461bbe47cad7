"""Frames per second between two testpmds, over the HCAs and over virtio-net NICs in turn."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from bluebridge.host_tools.campaigns.bench.figures import Figure, at_least, at_most, plain
from bluebridge.host_tools.campaigns.bench.links import nic_mac, plug_nic
from bluebridge.host_tools.campaigns.bench.rdma import in_turn
from bluebridge.host_tools.campaigns.conformance.session import Session
from bluebridge.host_tools.campaigns.conformance.setups import DPDK
from bluebridge.host_tools.campaigns.conformance.testpmd_steps import function, silent
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.testpmd import Testpmd, race
from bluebridge.host_tools.progress import Progress

ROUNDS = 5
SECONDS = 3.0
GOAL = 5.0
"""The goal: how many times faster than virtio-net the HCAs should be."""
_NIC_PORT = 1  # the HCA has port 0
_TO_VFIO = """
modprobe vfio enable_unsafe_noiommu_mode=1 && modprobe vfio-pci || exit 1
cd /sys/bus/pci/devices/{nic} || exit 1
echo {nic} > driver/unbind
echo vfio-pci > driver_override
echo {nic} > /sys/bus/pci/drivers_probe
"""


class Contest:
    """Measures testpmd over both links of a pair; `lost` counts the frames that the HCAs lost."""

    def __init__(self, pair: Pair, mac: str) -> None:
        """`mac` is the address of guest a's HCA."""
        self._pair = pair
        self._hca, self._nic = function(pair.a), _nic()
        self._macs = {self._hca: mac, self._nic: nic_mac(0)}
        self.lost = 0

    def hca(self) -> float:
        """Return the frames per second that arrive over the HCAs."""
        return self._rate(self._hca)

    def virtio(self) -> float:
        """Return the frames per second that arrive over the virtio-net NICs."""
        return self._rate(self._nic)

    def _rate(self, where: str) -> float:
        peer = f"--eth-peer=0,{self._macs[where]}"
        with (
            Testpmd(self._pair.a, where, "--forward-mode=rxonly") as receiver,
            Testpmd(self._pair.b, where, f"--forward-mode=txonly {peer}") as sender,
        ):
            seconds, sent, received = race(sender, receiver, SECONDS)
        if where == self._hca:
            self.lost += sent.sent - received.received
        return received.received / seconds


def figures(progress: Progress) -> list[Figure]:
    """Measure all figures of DPDK's section. Raises `LabError`."""
    progress("testpmd: HCA and virtio-net in turn")
    with tempfile.TemporaryDirectory() as logs, Session(DPDK, Path(logs)) as session:
        pair = session.pair
        pair.together(*(partial(_give_nic, pair, number) for number in range(2)))
        mac = pair.a.run(f"cat /sys/class/net/{session.words.netdev}/address").text.strip()
        contest = Contest(pair, mac)
        with silent(session):
            ours, theirs = in_turn(contest.hca, contest.virtio, ROUNDS)
    title = "testpmd, 64-byte frames, one queue"
    rows = [
        plain("testpmd", f"{title}, HCA", ours, "1/s"),
        plain("testpmd_virtio", f"{title}, virtio-net over dgram", theirs, "1/s"),
        at_least(plain("testpmd_ratio", f"{title}: ratio", ours / theirs, "x"), GOAL),
    ]
    return [*rows, at_most(plain("testpmd_lost", "the same, HCA: lost", contest.lost, ""), 0)]


def _give_nic(pair: Pair, number: int) -> None:
    """A virtio-net NIC in the guest of that number, for DPDK's own driver."""
    machine: Vm = pair.machines[number]
    plug_nic(pair, number, _NIC_PORT)
    machine.run(_TO_VFIO.format(nic=_nic()))


def _nic() -> str:
    return f"0000:{_NIC_PORT + 1:02x}:00.0"
