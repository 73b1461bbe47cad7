"""Device-managed flow steering: ntuple rules, `ibv_create_flow`, DPDK, receive side scaling."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.campaigns.conformance import testpmd_steps as testpmd
from tests.campaigns.conformance.program import Program
from tests.campaigns.conformance.session import CONNECTX5_USERS, DPDK, Setup
from tests.campaigns.conformance.suites.verbs import TESTS

_ADDRESS = "/sys/class/net/{netdev}/address"
_ADD = "ethtool -N {netdev} flow-type"
_RING = "ethtool -S {netdev} | sed -n 's/ *rx%s_packets: //p'"
_NO_RULES = (
    "for n in $(ethtool -n {netdev} | sed -n 's/Filter: //p'); "
    "do ethtool -N {netdev} delete $n; done"
)
_PEER = (
    "ip neigh flush to %s; ping -c 1 -W 1 %s > /dev/null; "
    "peer=$(ip neigh show %s | grep -o '..:..:..:..:..:..')"
)
"""The peer's address by a broadcast: rules of user programs take unicast frames from the kernel."""
_FRAMES = 100
_DEVICE = "$(ls /sys/class/infiniband)"
_BOTH = (DPDK, CONNECTX5_USERS)
_PORTS = "-K 7000 -k 7001"


def programs() -> list[Program]:
    """Rules that name rings, that drop, that overlap; raw frames by MAC, IPv4, UDP, TCP; DPDK."""
    return [*_ntuple(), *_raw(), *_others(), *_dpdk()]


def _ntuple() -> list[Program]:
    ring = "; ".join(
        f"{_ADD} ip4 src-ip {{server}} action {number} loc 4 && "
        f"before=$({_RING % number}) && ping -c 20 -i 0.05 {{server}} > /dev/null && "
        f"echo ring {number}: $(($({_RING % number}) - before))"
        for number in (0, 1)
    )
    dropped = (
        f"{_ADD} ip4 src-ip {{server}} action -1 loc 4 && ping -c 3 -i 0.2 -W 1 {{server}}; "
        "ethtool -N {netdev} delete 4 && ping -c 3 -i 0.2 {server}"
    )
    overlap = (
        f"{_ADD} ip4 src-ip {{server}} action -1 loc 5 && "
        f"{_ADD} ip4 src-ip {{server}} action 1 loc 3 && "
        "ping -c 3 -i 0.2 {server}; ethtool -N {netdev} delete 3 && "
        "ping -c 3 -i 0.2 -W 1 {server}; true"
    )
    return [
        _rule("ethtool -N names a ring", ring, r"(?s)ring 0: [2-9]\d.*ring 1: [2-9]\d"),
        _rule("ethtool -N drops", dropped, r"(?s) 100% packet loss.* 0% packet loss"),
        _rule("ethtool -N, the lower of two", overlap, r"(?s) 0% packet loss.* 100% packet loss"),
    ]


def _rule(name: str, client: str, expect: str) -> Program:
    return Program(
        "steering",
        name,
        f"ethtool -K {{netdev}} ntuple on && {client}",
        expect=expect,
        setups=(DPDK,),
        after=_NO_RULES,
    )


def _raw() -> list[Program]:
    """perftest's raw_ethernet_bw, whose server makes rules."""
    return [
        _bandwidth("by MAC"),
        _bandwidth("by IPv4 and UDP", f"-j {{client}} -J {{server}} {_PORTS}"),
        _bandwidth("by IPv4 and TCP", f"-j {{client}} -J {{server}} {_PORTS} --tcp"),
        _bandwidth("to anybody, promiscuous", target="02:aa:00:00:00:07", own="--promiscuous"),
        _bandwidth("sniffed", own="--sniffer", setups=(DPDK,)),
    ]


def _bandwidth(
    name: str,
    options: str = "",
    *,
    target: str = "$peer",
    own: str = "",
    setups: tuple[Setup, ...] = _BOTH,
) -> Program:
    words = f"raw_ethernet_bw -d {_DEVICE} -n {_FRAMES} -s 512 -F {options}"
    mac = f"-B $(cat {_ADDRESS})"
    return Program(
        "steering",
        f"raw_ethernet_bw {name}",
        f"{_PEER.replace('%s', '{server}')}; {words} --client {mac} -E {target}",
        f"{_PEER.replace('%s', '{client}')}; {words} --server {mac} -E $peer {own}",
        "rdma resource show qp | grep -q 'type RAW_PACKET state RT'",
        expect=rf"(?m)^ 512 +{_FRAMES} ",
        setups=setups,
    )


def _others() -> list[Program]:
    rate = (
        f"raw_ethernet_fs_rate --server -d {_DEVICE} -n 300 -B $(cat {_ADDRESS}) "
        f"-E 02:aa:00:00:00:07 -J {{client}} -j {{server}} {_PORTS}"
    )
    tests = (
        f"cd {TESTS} && "
        "python3 tests/run_tests.py -v --dev mlx4_0 --port 1 -k test_eth_spec_flow 2>&1"
    )
    return [
        Program("steering", "raw_ethernet_fs_rate", rate, expect="^300 ", setups=_BOTH),
        Program("steering", "rdma-core's flow test", tests, expect=r"\.\.\. ok$", setups=(DPDK,)),
    ]


_RSS = Path(__file__).parent.parent / "in_guest_rss.py"
_PLACE = "/tmp/rss_test.py"


def _dpdk() -> list[Program]:
    """testpmd's forwarding modes, then its rules; rdma-core's test of RSS."""
    program = partial(Program, "dpdk", setups=_BOTH)
    return [
        program("testpmd txonly to rxonly, 64 bytes, one queue", steps=testpmd.one_queue),
        program("testpmd flowgen to rxonly, four queues by RSS", steps=testpmd.spread),
        program("testpmd icmpecho answers mlx4_en", steps=testpmd.echoes),
        program("testpmd csum mends checksums of mlx4_en's guest", steps=testpmd.checksums),
        program("testpmd rte_flow by UDP port", steps=testpmd.rules),
        program(
            "rdma-core's RSS test over aligned work queues",
            f"python3 -W ignore {_PLACE} {TESTS}",
            expect="^OK",
            files=((_PLACE, _RSS),),
            setups=(DPDK,),
        ),
    ]
