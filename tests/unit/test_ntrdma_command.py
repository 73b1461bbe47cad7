"""`bluebridge ntrdma`: its command line, measuring over TCP, one write out of a log."""

from __future__ import annotations

import pytest

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.guest.ntrdma.engine.entries import COMPLETION, SendEntry
from bluebridge.host_tools import arguments
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.krping.command import Request
from bluebridge.host_tools.ntrdma.command import main
from bluebridge.host_tools.ntrdma.one_write import one


def test_perf_over_tcp(capsys: pytest.CaptureFixture[str]) -> None:
    """Without guests, in qperf's format."""
    words = [
        "ntrdma",
        "perf",
        "--backend",
        "tcp",
        "--no-guests",
        "--count",
        "5",
        "rc_rdma_write_lat",
        "rc_bw",
    ]
    assert main(arguments.parse(words)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0::2] == ["rc_rdma_write_lat:", "rc_bw:"]
    assert lines[1].endswith(" us") and lines[3].endswith(" MB/sec")


def test_a_test_that_is_none() -> None:
    with pytest.raises(UsageError, match="no such test: ud_lat"):
        main(arguments.parse(["ntrdma", "perf", "ud_lat"]))


def test_processes_have_no_bridge() -> None:
    with pytest.raises(UsageError, match="a bridge stands between guests"):
        main(arguments.parse(["ntrdma", "perf", "--no-guests", "--backend", "ntb+cpu"]))


def test_krping_names_its_provider() -> None:
    server, client = (f"{side},addr=10.0.0.1,port=9,count=1" for side in ("server", "client"))
    plain = Request.parse(server, client)
    assert "--provider" not in plain.command(server=True)
    other = Request.parse(server, client, "ntb+cpu")
    assert "--provider ntrdma --backend ntb+cpu --ip 10.0.0.2" in other.command(server=False)
    over_tcp = Request.parse(server, client, "tcp")
    places = [f"--backend {role}:10.9.0.1:" for role in "sc"]
    assert places[0] in over_tcp.command(server=True)
    assert places[1] in over_tcp.command(server=False)


def event(number: int, device: str, kind: Kind, data: bytes, address: int = 0) -> Event:
    """A copy, or a store into a register."""
    what = What.COPY if kind is Kind.DMA_WRITE else What.OTHER
    return Event(number, 0.0, device, kind, 0, what, 0, address, len(data), data)


def test_one_write_in_a_log() -> None:
    write = SendEntry(0, 8, 0, 0, 7, 8, 0, 0, ()).pack()
    read = SendEntry(0, 9, 0, 0, 7, 8, 0, 0, ()).pack()
    events = [
        event(0, "a.dma", Kind.MMIO_WRITE, b"\1\0"),
        event(1, "a.dma", Kind.DMA_WRITE, b"12345678"),
        event(2, "a.dma", Kind.DMA_WRITE, write),
        event(3, "a.ntb4", Kind.CONFIG_READ, b"\0\0"),
        event(4, "a.dma", Kind.DMA_WRITE, b"1234", 0xF8FEE00000),
        event(5, "b.dma", Kind.DMA_WRITE, COMPLETION.pack(0, 8, 0, 8, 0)),
        event(6, "b.dma", Kind.DMA_WRITE, b"1234", 0xF8FEE00000),
        event(7, "a.dma", Kind.MMIO_WRITE, b"\2\0"),
        event(8, "a.dma", Kind.DMA_WRITE, read),
    ]
    assert [each.number for each in one(events, "a", "b")] == [0, 1, 2, 4, 5, 6]
    assert one(events[:5], "a", "b") == []
    assert one(events, "b", "a") == []
