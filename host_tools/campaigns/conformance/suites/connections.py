"""librdmacm's examples: connections, datagrams, multicast and sockets over RDMA."""

from __future__ import annotations

from bluebridge.host_tools.campaigns.conformance.program import Program
from bluebridge.host_tools.campaigns.conformance.setups import INFINIBAND, OPENSM, ROCE, ROCE_V2
from bluebridge.host_tools.programs.perftest import CM_LISTENING

GROUP = "239.1.2.3"
_ALL = (ROCE, INFINIBAND, ROCE_V2, OPENSM)
_DONE = "return status 0"
_QUICK_SIZE = 4096
"""Bytes; of programs that differ only in the size of their messages the short run has this one."""


def programs() -> list[Program]:
    """Return the programs from rping to rcopy."""
    return [*_pings(), *_datagrams(), *_sockets()]


def _program(
    name: str,
    server: str,
    client: str,
    expect: str = "",
    *,
    ready: str = CM_LISTENING,
    limit: float = 60,
    short: bool = True,
) -> Program:
    return Program(
        "connections",
        name,
        client,
        server,
        ready,
        expect=expect,
        limit=limit,
        setups=_ALL,
        short=short,
    )


def _pings() -> list[Program]:
    # Its status tells whether data were right; whether it prints anything depends on who hangs up.
    rping = "rping -s -V -C 1000 -S {size} -a {address}"
    found = [
        _program(
            f"rping -C 1000 -V -S {size}",
            rping.format(size=size, address="0.0.0.0"),
            f"rping -c -V -C 1000 -S {size} -a {{server}}",
            short=size == _QUICK_SIZE,
        )
        for size in (64, 4096, 65535)
    ]
    found.append(
        _program(
            "rping -C 100 -V over IPv6",
            "rping -s -V -C 100 -a ::",
            "rping -c -V -C 100 -a {server6}%{netdev}",
        )
    )
    found.append(
        _program(
            "ucmatose -c 4 -C 100 -S 4096",
            "ucmatose -c 4 -C 100 -S 4096",
            "ucmatose -c 4 -C 100 -S 4096 -s {server}",
            _DONE,
        )
    )
    cmtime = "cmtime -c 100"
    found.append(_program(cmtime, cmtime, f"{cmtime} -s {{server}}", "destroy qp", limit=120))
    return found


def _datagrams() -> list[Program]:
    udaddy = "udaddy -c 4 -C 20"
    mckey = f"mckey -m {GROUP} -C 20"
    joined = "rdma resource show qp | grep -q 'comm mckey'"
    return [
        _program(udaddy, udaddy, f"{udaddy} -s {{server}}", _DONE),
        _program(
            "mckey", f"{mckey} -b {{server}}", f"{mckey} -s -b {{client}}", _DONE, ready=joined
        ),
    ]


def _sockets() -> list[Program]:
    found = []
    for tool in ("rstream", "riostream"):
        for size, count in ((64, 200), (4096, 100), (65536, 50), (1048576, 5)):
            words = f"{tool} -S {size} -C {count} -I 10 -T v -T b"
            short = size == _QUICK_SIZE
            found.append(_program(words, words, f"{words} -s {{server}}", "custom", short=short))
    made, lines = "/tmp/rcopy.sent", 100_000
    found.append(
        _program(
            "rcopy of 0.6 MB",
            # The server goes on waiting; what it received is compared in the guest it came to.
            "rcopy > /dev/null & p=$!; "
            f"until seq {lines} | cmp -s - /tmp/rcopy.came; do sleep 0.1; done; kill $p",
            f"seq {lines} > {made} && rcopy {made} {{server}}:/tmp/rcopy.came",
            "bytes in",
        )
    )
    return found
