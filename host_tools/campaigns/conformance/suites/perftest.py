"""perftest: latency and bandwidth of every operation over every transport it exists for."""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.host_tools.campaigns.conformance.program import Program
from bluebridge.host_tools.campaigns.conformance.setups import (
    BLUEFLAME,
    INFINIBAND,
    ROCE,
    ROCE_V2,
    Setup,
)
from bluebridge.host_tools.programs.perftest import (
    CM_LISTENING,
    UNEVEN_CLOCK,
    VERBS_PORT,
    listening,
)

TRANSPORTS = {"send": ("RC", "UC", "UD"), "write": ("RC", "UC"), "read": ("RC",), "atomic": ("RC",)}
ATOMICS = ("FETCH_AND_ADD", "CMP_AND_SWAP")
_BIG = 8 << 20
QUICK = frozenset(
    (
        "ib_send_lat -c UC -s 64 -n 1000",
        "ib_send_lat -c UD -s 64 -n 1000",
        "ib_write_lat -c RC -s 64 -n 1000 -I 220",
        "ib_read_lat -c RC -s 64 -n 1000",
        "ib_atomic_lat -c RC -n 1000",
        "ib_atomic_bw -c RC -A CMP_AND_SWAP -n 200 -b -e",
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
)
"""The programs of the short run: each operation, transport and way of being told once."""
_UNSUPPORTED = r"(?i)not supported|unsupported|Error opening XRC domain"


def programs() -> list[Program]:
    """Return programs of all sizes (`-a`), polled and with events, one way and both ways."""
    found = []
    for verb, transports in TRANSPORTS.items():
        for transport in transports:
            for mode in ("lat", "bw"):
                found += list(_variants(verb, mode, transport))
    return found + _options()


def _variants(verb: str, mode: str, transport: str) -> Iterator[Program]:
    ways = [""] if mode == "lat" else ["", "-b"]
    for way in ways:
        for events in ("", "-e"):
            # perftest: "Events feature not available on WRITE verb".
            if events and verb == "write":
                continue
            for words in _sizes(verb, mode):
                yield _program(f"ib_{verb}_{mode} -c {transport} {words} {way} {events}")


def _sizes(verb: str, mode: str) -> list[str]:
    if verb == "atomic":
        return [f"-A {kind} -n 200" for kind in ATOMICS]
    return ["-a -n 100"]


def _options() -> list[Program]:
    """What else its users ask of it, on one size each."""
    return [
        _program(words, (ROCE, INFINIBAND, BLUEFLAME, ROCE_V2))
        for words in (
            "ib_send_lat -c RC -s 64 -n 1000",
            "ib_send_lat -c UC -s 64 -n 1000",
            "ib_send_lat -c UD -s 64 -n 1000",
            "ib_write_lat -c RC -s 64 -n 1000",
            "ib_read_lat -c RC -s 64 -n 1000",
            "ib_atomic_lat -c RC -n 1000",
            "ib_send_bw -c RC -s 65536 -n 500 -b -e",
            "ib_write_bw -c RC -s 1048576 -n 100 -b",
            "ib_read_bw -c RC -s 65536 -n 500 -e",
            "ib_write_bw -c RC -s 65536 -n 500 -R",
            "ib_send_bw -c RC -s 65536 -n 500 -R",
            "ib_send_bw -c RC -s 4096 -n 500 --use-srq -q 4",
            "ib_write_bw -c RC -s 65536 -n 500 -q 8",
            "ib_write_lat -c RC -s 64 -n 1000 -I 0",
            "ib_write_lat -c RC -s 64 -n 1000 -I 220",
            "ib_send_lat -c RC -s 64 -n 1000 -I 220",
            "ib_write_bw -c RC -s 4096 -n 500 -m 256",
            "ib_write_bw -c RC -s 4096 -n 500 --cq-mod 1",
            "ib_write_bw -c RC -s 1000000 -n 50 --report_gbits",
            "ib_send_bw -c XRC -s 4096 -n 200",
        )
    ]


def _program(words: str, setups: tuple[Setup, ...] = (ROCE, INFINIBAND)) -> Program:
    command = " ".join(words.split())
    return Program(
        "perftest",
        command,
        server=f"{command} {{x}}",
        ready=_CM if "-R" in command.split() else listening(VERBS_PORT),
        client=f"{command} {{x}} {{server}}",
        expect=_last_row(command),
        unsupported=_UNSUPPORTED,
        repeat=UNEVEN_CLOCK,
        limit=240,
        setups=setups,
        short=command in QUICK,
    )


_CM = f"{{ {CM_LISTENING}; }} || {listening(VERBS_PORT)}"
"""With -R addresses are exchanged through rdma_cm, or over TCP before that."""


def _last_row(command: str) -> str:
    """The line of the largest size must be in the table."""
    words = command.split()
    if "-a" in words and "UD" not in words:
        return rf"^ *{_BIG} +\d"
    return r"^ *\d+ +\d+ +\d"
