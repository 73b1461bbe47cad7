"""Programs of libibverbs, librdmacm, perftest and qperf, and rdma-core's own tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from bluebridge.host_tools.programs.perftest import (
    CM_LISTENING,
    UNEVEN_CLOCK,
    VERBS_PORT,
    listening,
)
from bluebridge.host_tools.programs.running import Ended
from tests.campaigns.conformance.program import FAILED, SKIPPED, Judge, Program, Verdict
from tests.campaigns.conformance.session import BLUEFLAME, INFINIBAND, OPENSM, ROCE, ROCE_V2, Setup

_BOTH = (ROCE, INFINIBAND)
_DONE = "return status 0"


def programs() -> list[Program]:
    """Return all of them: a connection each, each with its peer's program as the server."""
    return [*_pingpongs(), *_connections(), *_perftest(), *_qperf(), *_rdma_core()]


# -- libibverbs' examples: one queue pair, messages there and back -------------------------------

_PINGPONGS = {"rc": "-e", "uc": "-c", "ud": "", "srq": "-e"}
"""The option with which the short run has each kind."""


def _pingpongs() -> list[Program]:
    """Each kind plain, with events, with checked contents."""
    setups = (ROCE, INFINIBAND, BLUEFLAME, ROCE_V2, OPENSM)
    return [
        pingpong("pingpong", f"ibv_{kind}_pingpong {option}".strip(), 1000, setups, option == quick)
        for kind, quick in _PINGPONGS.items()
        for option in ("", "-e", "-c")
    ]


def pingpong(
    suite: str, words: str, count: int, setups: tuple[Setup, ...], short: bool = False
) -> Program:
    """Return an example of libibverbs, in whose `words` there are `count` messages."""
    return Program(
        suite,
        words,
        f"{words} {{g}} {{server}}",
        f"{words} {{g}}",
        listening(VERBS_PORT),
        expect=rf"{count} iters in .* seconds",
        limit=90,
        setups=setups,
        short=short,
    )


# -- librdmacm's examples: connections, datagrams, multicast and sockets over RDMA ----------------

_QUICK_SIZE = 4096
"""Bytes; of programs that differ only in the size of their messages the short run has this one."""


def connection(
    suite: str,
    words: str,
    server: str,
    client: str,
    expect: str,
    setups: tuple[Setup, ...],
    *,
    name: str = "",
    ready: str = CM_LISTENING,
    short: bool = False,
) -> Program:
    """Return a program of librdmacm by its `words`, and those that only its sides have."""
    return Program(
        suite,
        name or words,
        f"{words} {client}",
        f"{words} {server}",
        ready,
        expect=expect,
        limit=120,
        setups=setups,
        short=short,
    )


def _connections() -> Iterator[Program]:
    suite, setups = "connections", (ROCE, INFINIBAND, ROCE_V2, OPENSM)
    # Its status tells whether data were right; whether it prints anything depends on who hangs up.
    for size in (64, 4096, 65535):
        words, sides = f"rping -C 1000 -V -S {size}", ("-s -a 0.0.0.0", "-c -a {server}")
        yield connection(suite, words, *sides, "", setups)
    words, sides = "rping -C 100 -V", ("-s -a ::", "-c -a {server6}%{netdev}")
    yield connection(suite, words, *sides, "", setups, name=f"{words} over IPv6", short=True)
    for words, expect in (
        ("ucmatose -c 4 -C 100 -S 4096", _DONE),
        ("cmtime -c 100", "destroy qp"),
        ("udaddy -c 4 -C 20", _DONE),
    ):
        yield connection(suite, words, "", "-s {server}", expect, setups, short=True)
    joined = "rdma resource show qp | grep -q 'comm mckey'"
    words, sides = "mckey -m 239.1.2.3 -C 20", ("-b {server}", "-s -b {client}")
    yield connection(suite, words, *sides, _DONE, setups, name="mckey", ready=joined, short=True)
    for tool in ("rstream", "riostream"):
        for size, count in ((64, 200), (4096, 100), (65536, 50), (1048576, 5)):
            words, short = f"{tool} -S {size} -C {count} -I 10 -T v -T b", size == _QUICK_SIZE
            yield connection(suite, words, "", "-s {server}", "custom", setups, short=short)
    made, lines = "/tmp/rcopy.sent", 100_000
    yield Program(
        suite,
        "rcopy of 0.6 MB",
        f"seq {lines} > {made} && rcopy {made} {{server}}:/tmp/rcopy.came",
        # The server goes on waiting; what it received is compared in the guest it came to.
        "rcopy > /dev/null & p=$!; "
        f"until seq {lines} | cmp -s - /tmp/rcopy.came; do sleep 0.1; done; kill $p",
        CM_LISTENING,
        expect="bytes in",
        setups=setups,
        short=True,
    )


# -- perftest: latency and bandwidth of every operation over every transport it exists for --------

_TRANSPORTS = {
    "send": ("RC", "UC", "UD"),
    "write": ("RC", "UC"),
    "read": ("RC",),
    "atomic": ("RC",),
}
_BIG = 8 << 20
_QUICK_OPTIONS = (
    "ib_send_lat -c UD -s 64 -n 1000",
    "ib_write_lat -c RC -s 64 -n 1000 -I 220",
    "ib_read_lat -c RC -s 64 -n 1000",
    "ib_atomic_lat -c RC -n 1000",
    "ib_send_bw -c RC -s 65536 -n 500 -b -e",
    "ib_write_bw -c RC -s 1048576 -n 100 -b",
    "ib_read_bw -c RC -s 65536 -n 500 -e",
    "ib_write_bw -c RC -s 65536 -n 500 -R",
    "ib_send_bw -c RC -s 4096 -n 500 --use-srq -q 4",
    "ib_write_bw -c RC -s 65536 -n 500 -q 8",
    "ib_write_bw -c RC -s 4096 -n 500 -m 256",
    "ib_write_bw -c RC -s 4096 -n 500 --cq-mod 1",
    "ib_send_bw -c XRC -s 4096 -n 200",
)
"""Other things that users ask of it, on one size each, as the short run has it too."""
_OPTIONS = (
    "ib_send_lat -c RC -s 64 -n 1000",
    "ib_send_lat -c UC -s 64 -n 1000",
    "ib_write_lat -c RC -s 64 -n 1000",
    "ib_send_bw -c RC -s 65536 -n 500 -R",
    "ib_write_lat -c RC -s 64 -n 1000 -I 0",
    "ib_send_lat -c RC -s 64 -n 1000 -I 220",
    "ib_write_bw -c RC -s 1000000 -n 50 --report_gbits",
)
_UNSUPPORTED = r"(?i)not supported|unsupported|Error opening XRC domain"
_QUICK_ATOMIC = "ib_atomic_bw -c RC -A CMP_AND_SWAP -n 200 -b -e"


def _perftest() -> Iterator[Program]:
    """All sizes (`-a`), polled and with events, one way and both ways; then single options."""
    program = partial(perftest, "perftest", unsupported=_UNSUPPORTED)
    for verb, transports in _TRANSPORTS.items():
        # perftest: "Events feature not available on WRITE verb".
        events = ("",) if verb == "write" else ("", " -e")
        atomics = [f"-A {kind} -n 200" for kind in ("FETCH_AND_ADD", "CMP_AND_SWAP")]
        for words in (
            f"ib_{verb}_{mode} -c {transport} {size}{way}{event}"
            for transport in transports
            for mode, ways in (("lat", ("",)), ("bw", ("", " -b")))
            for way in ways
            for event in events
            for size in (atomics if verb == "atomic" else ["-a -n 100"])
        ):
            yield program(words, _BOTH, short=words == _QUICK_ATOMIC)
    for words in (*_QUICK_OPTIONS, *_OPTIONS):
        setups = (ROCE, INFINIBAND, BLUEFLAME, ROCE_V2)
        yield program(words, setups, short=words in _QUICK_OPTIONS)


def perftest(
    suite: str,
    words: str,
    setups: tuple[Setup, ...],
    *,
    more: str = "",
    unsupported: str = "",
    short: bool = False,
) -> Program:
    """Return a program of perftest; `more` are options that its name leaves out."""
    command = f"{words} {more} {{x}}"
    listens = listening(VERBS_PORT)
    options = words.split()
    # The line of the largest size must be in the table.
    whole = "-a" in options and "UD" not in options
    return Program(
        suite,
        words,
        f"{command} {{server}}",
        command,
        # With -R addresses are exchanged through rdma_cm, or over TCP before that.
        f"{{ {CM_LISTENING}; }} || {listens}" if "-R" in options else listens,
        expect=rf"^ *{_BIG} +\d" if whole else r"^ *\d+ +\d+ +\d",
        unsupported=unsupported,
        repeat=UNEVEN_CLOCK,
        limit=240,
        setups=setups,
        short=short,
    )


# -- qperf: bandwidth, latency and message rate, its own way of making connections -----------------

_RELIABLE = (
    "rc_bw", "rc_bi_bw", "rc_lat", "rc_rdma_read_bw", "rc_rdma_read_lat", "rc_rdma_write_bw",
    "rc_rdma_write_lat", "rc_rdma_write_poll_lat", "rc_compare_swap_mr", "rc_fetch_add_mr",
    "ver_rc_compare_swap", "ver_rc_fetch_add",
)  # fmt: skip
_UNRELIABLE = (
    "uc_bw", "uc_bi_bw", "uc_lat", "uc_rdma_write_bw", "uc_rdma_write_lat",
    "uc_rdma_write_poll_lat", "ud_bw", "ud_bi_bw", "ud_lat",
)  # fmt: skip
_QPERF_PORT = 19765


def _qperf() -> Iterator[Program]:
    """qperf 0.4.11 sets no GRH, so on Ethernet its connections go through rdma_cm (`-cm 1`)."""
    by_cm = [f"-cm 1 {test}" for test in _RELIABLE]
    for tests, setups in (
        (by_cm, _BOTH),
        ((*_RELIABLE, *_UNRELIABLE), (INFINIBAND,)),
        (("tcp_bw", "tcp_lat"), _BOTH),
    ):
        for words in tests:
            yield Program(
                "qperf",
                words,
                f"qperf {{server}} -t 1 {words}",
                "qperf",
                listening(_QPERF_PORT),
                lasting=True,
                expect=r"(bw|latency|msg_rate|tests?) +=|successful",
                setups=setups,
                short=words == "-cm 1 rc_lat",
            )


# -- rdma-core's own tests, through python3-pyverbs ------------------------------------------------

_SCRIPT = Path(__file__).parent.parent / "in_guest.py"
_PLACE = "/tmp/rdma_core_tests.py"
TESTS = "/usr/share/doc/rdma-core"
GENERIC = 181
"""Tests that are not of another vendor's device; one that is lost counts as failed."""


def rdma_core(
    name: str, environment: str, setups: tuple[Setup, ...], judge: Judge, *, short: bool = False
) -> Program:
    """Return rdma-core's tests in one process, as its `run_tests.py` runs them."""
    return Program(
        "rdma-core",
        name,
        f"{environment} python3 -W ignore {_PLACE} {TESTS} 2> /tmp/stderr || tail -n 5 /tmp/stderr",
        judge=judge,
        files=((_PLACE, _SCRIPT),),
        limit=900,
        setups=setups,
        short=short,
    )


def _rdma_core() -> list[Program]:
    return [rdma_core("tests", "", (ROCE, INFINIBAND, BLUEFLAME, ROCE_V2), each_test, short=True)]


def each_test(ended: Ended, count: int = GENERIC, unsupported: str = "") -> Sequence[Verdict]:
    """A verdict for each line of `in_guest`, and one more when lines are missing.

    Tests that fail with the words `unsupported` are skipped: the device lacks what they need.
    """
    found = [
        Verdict(
            SKIPPED if unsupported and unsupported in line["reason"] else line["status"],
            line["reason"],
            line["test"].removeprefix("tests."),
        )
        for line in map(_json, ended.output.splitlines())
        if line
    ]
    if ended.status != 0 or len(found) < count:
        why = "no end in time" if ended.status is None else f"status {ended.status}"
        lost = f"{len(found)} of {count} tests reported, {why}: {ended.last_words}"
        found.append(Verdict(FAILED, lost, "all tests"))
    return found


def _json(line: str) -> dict[str, str]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "test" in found else {}
