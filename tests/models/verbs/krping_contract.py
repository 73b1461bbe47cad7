"""Tests of krping on every provider of verbs: it knows none of them."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from bluebridge.guest.connections import open_connections
from bluebridge.guest.protocols.krping.host import Host, Result
from bluebridge.guest.protocols.krping.progress import Log
from bluebridge.guest.protocols.krping.thread import KrpingThread
from bluebridge.guest.verbs import Device
from tests.models.until import until

SERVER_IP = "192.168.69.127"
CLIENT_IP = "192.168.69.128"
PATIENCE = 30.0


class Output(io.StringIO):
    """A log stream that counts the servers that began to listen."""

    listening = 0

    def write(self, text: str) -> int:
        self.listening += "rdma_listen" in text
        return super().write(text)


@dataclass
class Side:
    """One host with its log."""

    host: Host
    output: Output

    @property
    def text(self) -> str:
        return self.output.getvalue()


def side_on(device: Device, ip: str) -> Side:
    """A host on `device`, which it closes, at the address `ip`."""
    with ExitStack() as stack:
        stack.enter_context(device)
        manager = open_connections(device, ip, stack)
        output = Output()
        return Side(Host(device, manager, Log(output), stack.pop_all()), output)


@dataclass
class Run:
    """A command in a thread of its own."""

    thread: threading.Thread
    results: list[Result] = field(default_factory=list)
    running: list[KrpingThread] = field(default_factory=list)

    def result(self) -> Result:
        self.thread.join(PATIENCE)
        assert self.results, "the command did not end in time"
        return self.results[0]


def start(side: Side, command: str) -> Run:
    """Run a command beside the test; a server is listening when this returns."""
    before = side.output.listening
    run = Run(threading.Thread(daemon=True))

    def body() -> None:
        run.results.append(side.host.run(command, run.running.append))

    run.thread = threading.Thread(target=body, daemon=True)
    run.thread.start()
    if command.startswith("server"):
        until(lambda: side.output.listening > before or bool(run.results))
    return run


def both(pair: tuple[Side, Side], options: str, port: int = 9999) -> tuple[Run, Run]:
    """Start server and client with the same options."""
    address = f"addr={SERVER_IP},port={port}"
    server = start(pair[0], f"server,{address},{options}".rstrip(","))
    return server, start(pair[1], f"client,{address},{options}".rstrip(","))


Sides = tuple[Side, Side]
"""krping's server side and its client side."""


class KrpingContract:
    """Tests of a pair of sides; a class derives from it and has the fixture `sides`."""

    device_name: str

    @pytest.fixture
    def short_turns(self) -> Iterator[None]:
        """Let two sides that spin in one process wait little for the interpreter's lock."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(0.0002)
        yield
        sys.setswitchinterval(interval)

    @pytest.mark.brief("", "size=1048576", "mem_mode=reg", "mem_mode=reg,server_inv")
    @pytest.mark.parametrize(
        "options",
        [
            "",
            "size=64",
            "size=1",
            "size=4097",
            "size=100000",
            "size=1048576",
            "verbose",
            "local_dma_lkey",
            "mem_mode=dma",
            "mem_mode=reg",
            "mem_mode=reg,size=20000",
            "mem_mode=reg,server_inv",
            "mem_mode=reg,read_inv",
            "mem_mode=reg,server_inv,read_inv,local_dma_lkey,size=5000",
        ],
    )
    def test_pings(self, sides: Sides, options: str) -> None:
        """20 validated pings, counted alike on both sides."""
        runs = both(sides, f"count=20,validate,{options}".rstrip(","))
        served, asked = (run.result() for run in runs)
        assert (served.ok, asked.ok) == (True, True), (served.error, asked.error)
        assert served.iterations == asked.iterations == 20
        assert served.validated == asked.validated == 20
        assert asked.us_per_iteration is not None and asked.us_per_iteration["min"] > 0
        assert (asked.stats["send_msgs"], asked.stats["recv_msgs"]) == (40, 40)
        assert (served.stats["read_msgs"], served.stats["write_msgs"]) == (20, 20)
        assert served.stats["read_bytes"] == served.stats["write_bytes"]
        assert served.stats["name"] == f"1-{self.device_name}"
        assert len(served.stats_line.split()) == 9

    @pytest.mark.usefixtures("short_turns")
    @pytest.mark.brief("wlat,size=8", "rlat,poll,size=64", "bw,duplex,size=10000,tx-depth=4")
    @pytest.mark.parametrize(
        "options",
        [
            "wlat,size=8",
            "wlat,size=1,local_dma_lkey",
            "rlat,size=4096",
            "rlat,poll,size=64",
            "bw,size=65536,tx-depth=16",
            "bw,duplex,size=10000,tx-depth=4",
        ],
    )
    def test_benchmarks(self, sides: Sides, options: str) -> None:
        """The module's result line, latencies, and every message counted."""
        served, asked = (run.result() for run in both(sides, f"count=100,{options}"))
        assert (served.ok, asked.ok) == (True, True), (served.error, asked.error)
        assert asked.iterations == 100 and asked.us_per_iteration is not None
        assert "krping: delta sec " in sides[1].text
        size = int(options.partition("size=")[2].partition(",")[0])
        kind = "read" if "rlat" in options else "write"
        assert asked.stats[f"{kind}_msgs"] == 100
        assert asked.stats[f"{kind}_bytes"] == 100 * size
        if "duplex" in options or "wlat" in options:
            assert served.stats["write_msgs"] == 100

    def test_nobody_listens(self, sides: Sides) -> None:
        """The connection manager's refusal reaches the user."""
        result = start(sides[1], f"client,addr={SERVER_IP},port=9999,count=1").result()
        assert result.error.startswith("nobody listens on port 9999")

    def test_several_at_once(self, sides: Sides) -> None:
        """Three pairs of commands on the same two devices."""
        runs = [both(sides, "count=50,validate,size=3000", port) for port in (9001, 9002, 9003)]
        assert all(run.result().ok for pair in runs for run in pair)
