"""BlueFlame with the kernel's drivers and unmodified libmlx4: which transactions a send causes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from bluebridge.device.buslog.reader import Event, Filter, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.uar import BLUEFLAME_BUFFER
from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.analyzer.analysis import PostedBy, Role, Transfer, transfers
from bluebridge.host_tools.analyzer.model import load
from bluebridge.host_tools.lab.config import ADDRESSES
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.lab import Lab

COUNT = 20
_SERVER = ADDRESSES[0].partition("/")[0]
_LISTENS = "until ss -Hltn 'sport = :18515' | grep -q .; do sleep 0.05; done"


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Iterator[Pair]:
    """The kernel's drivers, BlueFlame advertised."""
    with lab.pair(kernel=True, options=ServerOptions(blueflame="on")) as pair:
        yield pair


def run(pair: Pair, words: str, size: int) -> list[Transfer]:
    """A latency program of perftest; the messages of both sides."""
    command = f"{words} -d mlx4_0 -s {size} -n {COUNT}"
    server = pair.a.agent.start(command, 60)
    pair.a.run(_LISTENS)
    pair.b.run(f"{command} {_SERVER}", timeout=60)
    assert server.wait().status == 0
    opcode = "RDMA_WRITE" if "write" in words else "SEND"
    deadline = time.monotonic() + 10
    while True:  # the server writes its log out every 50 ms
        found = [
            each
            for each in transfers(pair.logs)
            if each.length == size and each.opcode == opcode and each.status == "OK"
        ]
        if len(found) >= 2 * COUNT or time.monotonic() > deadline:
            return found


def kinds(transfer: Transfer) -> list[tuple[str, int, int]]:
    """Return what crossed the buses, as an analyzer names it: what for, bytes, stores of it.

    Without what a small completion queue causes now and then: it is full as far as the adapter
    knows, which looks up how far software has read.
    """
    return [
        (each.role.value, each.length, each.stores)
        for each in transfer.on_bus()
        if each.role is not Role.DOORBELL_RECORD
    ]


@pytest.mark.brief("88-2")
@pytest.mark.parametrize(("size", "lines"), [(28, 1), (88, 2), (208, 4)])
def test_ib_write_lat_writes_its_lines_and_reads_nothing(pair: Pair, size: int, lines: int) -> None:
    """Figure 4.6 of the study, for each row of table 4.1; every line is eight stores."""
    found = run(pair, "ib_write_lat", size)
    assert len(found) == 2 * COUNT
    expected = [
        *[(Role.BLUEFLAME.value, 64, 8)] * lines,
        (Role.PAYLOAD_WRITE.value, size, 1),
        (Role.CQE.value, 32, 1),
    ]
    for each in found:
        assert each.posted_by is PostedBy.BLUEFLAME, each.notes
        assert kinds(each) == expected
    assert len({load("system-z").latency(each) for each in found}) == 1


def test_beyond_half_a_register_it_rings(pair: Pair) -> None:
    """209 bytes need an entry of 272."""
    found = run(pair, "ib_write_lat", 209)
    assert len(found) == 2 * COUNT
    for each in found:
        assert kinds(each) == [
            (Role.DOORBELL.value, 4, 1),
            (Role.WQE.value, 272, 1),
            (Role.PAYLOAD_WRITE.value, 209, 1),
            (Role.CQE.value, 32, 1),
        ]


def test_ib_send_lat_too(pair: Pair) -> None:
    """A SEND's entry has no remote address: 16 bytes, then 44 of data in its first line."""
    found = run(pair, "ib_send_lat", 44)
    assert len(found) == 2 * COUNT
    for each in found:
        assert each.posted_by is PostedBy.BLUEFLAME, each.notes
        assert each.count(Role.BLUEFLAME) == 1
        assert each.count(Role.WQE) == 0
        assert each.of(Role.PAYLOAD_WRITE)[0].length == 44


def test_mlx4_en_too(pair: Pair) -> None:
    """Small frames; each ring fills the two buffers of its register in turn."""
    began = _now(pair)
    pair.b.run(f"ping -c 4 -i 0.2 {_SERVER}")
    places: dict[int, list[int]] = {}
    for event in _entries(pair, began, 4):
        places.setdefault(event.obj, []).append(event.address % (2 * BLUEFLAME_BUFFER))
    assert places
    for ring in places.values():
        assert all(before != after for before, after in pairwise(ring))


def _now(pair: Pair) -> float:
    return max((event.time for event in LogReader(pair.logs)), default=0.0)


def _entries(pair: Pair, began: float, count: int) -> list[Event]:
    """Return what guest b sent through BlueFlame since then: at least so many entries."""
    deadline = time.monotonic() + 10
    while True:
        found = [
            event
            for event in LogReader(pair.logs).events(Filter(since=began))
            if event.kind == Kind.BLUEFLAME and event.device == "b" and event.time > began
        ]
        if len(found) >= count or time.monotonic() > deadline:
            assert len(found) >= count
            return found
