"""DPDK's programs, and receive work queues by verbs: receive side scaling by user programs."""

from __future__ import annotations

from pathlib import Path

from bluebridge.host_tools.campaigns.conformance import testpmd_steps as testpmd
from bluebridge.host_tools.campaigns.conformance.program import Program, Steps
from bluebridge.host_tools.campaigns.conformance.setups import DPDK

_RSS = Path(__file__).parent.parent / "in_guest_rss.py"
_PLACE = "/tmp/rss_test.py"
_TESTS = "/usr/share/doc/rdma-core"


def programs() -> list[Program]:
    """testpmd's forwarding modes, then its rules; rdma-core's test of RSS."""
    return [
        _program("testpmd txonly to rxonly, 64 bytes, one queue", testpmd.one_queue),
        _program("testpmd flowgen to rxonly, four queues by RSS", testpmd.spread),
        _program("testpmd icmpecho answers mlx4_en", testpmd.echoes),
        _program("testpmd csum mends checksums of mlx4_en's guest", testpmd.checksums),
        _program("testpmd rte_flow by UDP port", testpmd.rules),
        Program(
            "dpdk",
            "rdma-core's RSS test over aligned work queues",
            f"python3 -W ignore {_PLACE} {_TESTS}",
            expect="^OK",
            files=((_PLACE, _RSS.read_bytes()),),
            setups=(DPDK,),
        ),
    ]


def _program(name: str, steps: Steps) -> Program:
    return Program("dpdk", name, steps=steps, setups=(DPDK,))
