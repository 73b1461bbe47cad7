"""The network device: mlx4_en on Ethernet, IPoIB on InfiniBand."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bluebridge.host_tools.campaigns.conformance.program import (
    FAILED,
    PASSED,
    Ended,
    Program,
    Verdict,
)
from bluebridge.host_tools.campaigns.conformance.setups import INFINIBAND, ROCE
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.programs.perftest import IPERF_PORT, listening

_HALF = 0.5


def programs() -> list[Program]:
    """Small packets, large ones, tagged ones, and TCP at full speed both ways."""
    return [*_pings(), *_large_and_tagged(), *_tools(), *_iperf()]


def _pings() -> list[Program]:
    both = (ROCE, INFINIBAND)
    return [
        Program("network", "ping", pings.line("{server}", "-c 20 -i 0.05"), expect=pings.ANSWERED),
        Program(
            "network",
            "ping over IPv6",
            pings.line("{server6}%{netdev}", "-c 20 -i 0.05"),
            expect=pings.ANSWERED,
            setups=both,
        ),
        Program(
            "network",
            "ping of 60000 bytes in fragments",
            pings.line("{server}", f"-s 60000 -c 4 -i {pings.SELDOM}"),
            expect=pings.ANSWERED,
            short=True,
        ),
    ]


def _large_and_tagged() -> list[Program]:
    return [
        Program(
            "network",
            "MTU 9000",
            server="ip link set {netdev} mtu 9000; sleep 60",
            after="ip link set {netdev} mtu 1500",
            ready="ip link show {netdev} | grep -q 'mtu 9000.*state UP'",
            lasting=True,
            client="ip link set {netdev} mtu 9000 && "
            + pings.line("{server}", "-M do -s 8972 -c 10 -i 0.5"),
            expect=pings.ANSWERED,
            setups=(ROCE,),
        ),
        Program(
            "network",
            "VLAN 5",
            server="ip link add link {netdev} name v5 type vlan id 5; "
            "ip addr add 10.5.0.1/24 dev v5; ip link set v5 up; sleep 60",
            after="ip link del v5",
            ready="ip -br addr show v5 | grep -q 'UP.*10.5.0.1'",
            lasting=True,
            client="ip link add link {netdev} name v5 type vlan id 5; "
            "ip addr add 10.5.0.2/24 dev v5; ip link set v5 up; "
            + pings.line("10.5.0.1", "-c 10 -i 0.1"),
            expect=pings.ANSWERED,
            setups=(ROCE,),
        ),
    ]


def _tools() -> list[Program]:
    capture = (
        "tcpdump -i {netdev} -c 10 -n icmp > /tmp/capture 2>&1 & "
        "until grep -q listening /tmp/capture; do sleep 0.1; done; "
        "ping -c 10 -i 0.05 {server} > /dev/null; wait; cat /tmp/capture"
    )
    return [
        Program("network", "tcpdump of pings", capture, expect="10 packets captured"),
        Program(
            "network", "ethtool -i", "ethtool -i {netdev}", expect="driver: (mlx4_en|ib_ipoib)"
        ),
        Program(
            "network",
            "ethtool -k: checksums and large sends of IPoIB",
            "ethtool -k {netdev} | grep '^[rt].*: on'",
            expect=r"(?s)rx-checksumming.*tx-checksumming.*tcp-segmentation-offload",
            setups=(INFINIBAND,),
        ),
        Program(
            "network",
            "ethtool -S",
            "ethtool -S {netdev}",
            expect=r"rx_packets: [1-9]|tx_packets: [1-9]",
            setups=(ROCE,),
        ),
        Program(
            "network",
            "ethtool -t",
            "ethtool -t {netdev}",
            expect="PASS",
            # The driver waits for half a second only, which a guest may stand still on a busy host.
            repeat=r"Loopback Test\s+[1-9]",
            setups=(ROCE,),
        ),
    ]


def _iperf() -> list[Program]:
    return [
        Program(
            "network",
            f"iperf3 -t {seconds} {way}".strip(),
            server="iperf3 -s -1 > /dev/null",
            ready=listening(IPERF_PORT),
            client=f"iperf3 -J -t {seconds} {way} -c {{server}}",
            judge=every_second_has_bytes,
            limit=seconds + 40,
        )
        for seconds in (5, 60)
        for way in ("", "-R")
    ]


def every_second_has_bytes(ended: Ended) -> Sequence[Verdict]:
    """iperf3's report: it came to its end and no second was empty.

    The last interval is what is left of a second, and may be too short for anything to come.
    """
    try:
        report = json.loads(ended.output)
        sums = [interval["sum"] for interval in report["intervals"]]
        moved = [each["bytes"] for each in sums if each["seconds"] > _HALF]
    except (ValueError, KeyError, TypeError):
        return [Verdict(FAILED, f"no report: {ended.last_words}")]
    if "error" in report or not moved:
        return [Verdict(FAILED, str(report.get("error", "it measured nothing")))]
    if 0 in moved:
        return [Verdict(FAILED, f"nothing moved in interval {moved.index(0)} of {len(moved)}")]
    rate = report["end"]["sum_received"]["bits_per_second"] / 1e6
    return [Verdict(PASSED, f"{rate:.0f} Mbit/s, slowest second {min(moved) * 8 / 1e6:.0f} Mbit")]
