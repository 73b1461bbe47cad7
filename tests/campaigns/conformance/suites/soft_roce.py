"""Programs between the HCA and Linux's Soft-RoCE, and what Soft-RoCE says of the packets it got."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.campaigns.conformance.program import FAILED, PASSED, Program, Verdict
from tests.campaigns.conformance.session import RXE, Session
from tests.campaigns.conformance.suites.verbs import connection, perftest, pingpong

_SUITE = "soft-roce"
_DONE = "return status 0"
_PERFTEST = (
    "ib_send_lat -s 64 -n 200",
    "ib_send_bw -s 65536 -n 20",
    "ib_send_bw -s 4096 -n 100 -b -e",
    "ib_write_lat -s 64 -n 200",
    "ib_write_bw -s 65536 -n 20",
    "ib_write_bw -s 1048576 -n 5",
    "ib_read_lat -s 64 -n 200",
    "ib_read_bw -s 65536 -n 20",
    "ib_atomic_lat -n 200",
    "ib_atomic_bw -A CMP_AND_SWAP -n 200",
)
_UNCONNECTED = (
    "ib_send_bw -c UC -s 4000 -n 100",
    "ib_write_bw -c UC -s 4000 -n 100",
    "ib_send_lat -c UD -s 64 -n 200",
    "ib_send_bw -c UD -s 1000 -n 100",
)
_CONNECTIONS = (
    *((f"rping -V -C 50 -S {size}", "-s -a {server}", "-c -a {server}", "", "")
      for size in (64, 4096, 65535)),
    ("rping -V -C 50", "-s -a ::", "-c -a {server6}%{netdev}", "", "rping over IPv6"),
    ("ucmatose -c 4 -C 20 -S 4096", "-b {server}", "-s {server}", _DONE, ""),
    ("udaddy -c 4 -C 20", "-b {server}", "-s {server}", _DONE, ""),
    ("rstream -S 4096 -C 50 -I 10 -T v", "", "-s {server}", "custom", ""),
)  # fmt: skip
"""Words, those of the server, those of the client, what a passing client prints, another name."""


def programs() -> list[Program]:
    """Return the programs of the matrix, and the judgement of their packets.

    Behind it comes a program that ends while messages are under way: what arrives for its queue
    pairs once they are destroyed, rxe refuses (rxe_rcv, hdr_check).
    """
    *connected, ends_early = (
        pingpong(_SUITE, f"ibv_{kind}_pingpong -n 200 -c{size}", 200, RXE)
        for kind, size in (("rc", ""), ("uc", ""), ("ud", " -s 1000"), ("srq", ""))
    )
    by_cm = [f"{words} -R" for words in _PERFTEST]
    return [
        *connected,
        *(
            connection(_SUITE, words, server, client, expect, RXE, name=name)
            for words, server, client, expect, name in _CONNECTIONS
        ),
        *(
            perftest(_SUITE, words, RXE, more=_outstanding(words))
            for words in (*_PERFTEST, *by_cm, *_UNCONNECTED)
        ),
        Program(_SUITE, "packets that rxe refused", steps=_refused, setups=RXE),
        ends_early,
    ]


def _outstanding(words: str) -> str:
    """Return `-F`, and how many READs and atomics are under way: perftest takes the peer's number.

    Soft-RoCE has 128, a ConnectX-5 16, and its driver refuses more (`mlx5_ib_modify_qp`).
    """
    return "-F -o 16" if "read" in words or "atomic" in words else "-F"


_COUNTERS = (
    "cd /sys/class/infiniband/rxe0/ports/1/hw_counters; echo accepted $(cat rcvd_pkts); "
    "nstat -asz UdpInDatagrams Udp6InDatagrams UdpInCsumErrors Udp6InCsumErrors"
)


def _refused(session: Session) -> Sequence[Verdict]:
    """Compare the packets that Linux handed to rxe with those that rxe accepted.

    rxe counts no packet that it refuses (rxe_rcv), so the difference is what it refused; nothing
    else in the guest receives UDP.
    """
    (judge,) = (each for each in session.pair.machines if session.pair.config.has_nic(each.name))
    text = judge.agent.run(_COUNTERS, check=True).text
    found = re.findall(r"^(\w+) +(\d+)", text, re.MULTILINE)
    counts = {name: int(count) for name, count in found}
    handed = counts["UdpInDatagrams"] + counts["Udp6InDatagrams"]
    refused = handed - counts["accepted"]
    wrong = counts["UdpInCsumErrors"] + counts["Udp6InCsumErrors"]
    told = f"{handed} packets, {refused} refused, {wrong} wrong UDP checksums"
    return [Verdict(FAILED if refused or wrong or not handed else PASSED, told)]
