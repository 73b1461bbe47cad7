"""Programs between the HCA and Linux's Soft-RoCE, and what Soft-RoCE says of the packets it got."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bluebridge.host_tools.campaigns.conformance.program import FAILED, PASSED, Program, Verdict
from bluebridge.host_tools.campaigns.conformance.session import Session
from bluebridge.host_tools.campaigns.conformance.setups import RXE
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.perftest import (
    CM_LISTENING,
    UNEVEN_CLOCK,
    VERBS_PORT,
    listening,
)

_DONE = "return status 0"
_READS = "-o 16"
"""perftest asks for as many READs as the peer can answer: rxe says 128, of which
mlx4_ib_modify_qp refuses what is above its 16."""
_PERFTEST = (
    "ib_send_lat -s 64 -n 200",
    "ib_send_bw -s 65536 -n 20",
    "ib_send_bw -s 4096 -n 100 -b -e",
    "ib_write_lat -s 64 -n 200",
    "ib_write_bw -s 65536 -n 20",
    "ib_write_bw -s 1048576 -n 5",
    f"ib_read_lat -s 64 -n 200 {_READS}",
    f"ib_read_bw -s 65536 -n 20 {_READS}",
    f"ib_atomic_lat -n 200 {_READS}",
    f"ib_atomic_bw -A CMP_AND_SWAP -n 200 {_READS}",
)
_UNCONNECTED = (
    "ib_send_bw -c UC -s 4000 -n 100",
    "ib_write_bw -c UC -s 4000 -n 100",
    "ib_send_lat -c UD -s 64 -n 200",
    "ib_send_bw -c UD -s 1000 -n 100",
)


def programs() -> list[Program]:
    """Return the programs of the matrix, and the judgement of their packets.

    Behind it comes a program that ends while messages are under way: what arrives for its queue
    pairs once they are destroyed, rxe refuses (rxe_rcv, hdr_check).
    """
    *connected, ends_early = _pingpong()
    found = [*connected, *_connections()]
    found += [_perftest(words) for words in _PERFTEST]
    found += [_perftest(f"{words} -R") for words in _PERFTEST]
    found += [_perftest(words) for words in _UNCONNECTED]
    found.append(Program("soft-roce", "packets that rxe refused", steps=_refused, setups=RXE))
    return [*found, ends_early]


def _program(name: str, server: str, client: str, expect: str, ready: str) -> Program:
    return Program("soft-roce", name, client, server, ready, expect=expect, limit=90, setups=RXE)


def _pingpong() -> list[Program]:
    found = []
    for kind in ("rc", "uc", "ud", "srq"):
        words = f"ibv_{kind}_pingpong -n 200 -c" + (" -s 1000" if kind == "ud" else "")
        server = f"{words} {{g}}"
        expect = r"200 iters in .* seconds"
        ready = listening(VERBS_PORT)
        found.append(_program(words, server, f"{server} {{server}}", expect, ready))
    return found


def _connections() -> list[Program]:
    found = []
    for size in (64, 4096, 65535):
        words = f"-V -C 50 -S {size}"
        server = f"rping -s {words} -a {{server}}"
        client = f"rping -c {words} -a {{server}}"
        found.append(_program(f"rping {words}", server, client, "", CM_LISTENING))
    client = "rping -c -V -C 50 -a {server6}%{netdev}"
    found.append(_program("rping over IPv6", "rping -s -V -C 50 -a ::", client, "", CM_LISTENING))
    for words in ("ucmatose -c 4 -C 20 -S 4096", "udaddy -c 4 -C 20"):
        server = f"{words} -b {{server}}"
        client = f"{words} -s {{server}}"
        found.append(_program(words, server, client, _DONE, CM_LISTENING))
    words = "rstream -S 4096 -C 50 -I 10 -T v"
    found.append(_program(words, words, f"{words} -s {{server}}", "custom", CM_LISTENING))
    return found


def _perftest(words: str) -> Program:
    listens = listening(VERBS_PORT)
    ready = f"{{ {CM_LISTENING}; }} || {listens}" if words.endswith("-R") else listens
    server = f"{words} -F {{x}}"
    return Program(
        "soft-roce",
        words,
        f"{server} {{server}}",
        server,
        ready,
        expect=r"^ *\d+ +\d+ +\d",
        repeat=UNEVEN_CLOCK,
        limit=120,
        setups=RXE,
    )


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
    counts = _counts(judge)
    handed = counts["UdpInDatagrams"] + counts["Udp6InDatagrams"]
    refused = handed - counts["accepted"]
    wrong = counts["UdpInCsumErrors"] + counts["Udp6InCsumErrors"]
    told = f"{handed} packets, {refused} refused, {wrong} wrong UDP checksums"
    return [Verdict(FAILED if refused or wrong or not handed else PASSED, told)]


def _counts(machine: Vm) -> dict[str, int]:
    text = machine.agent.run(_COUNTERS, check=True).text
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)", text, re.MULTILINE)}
