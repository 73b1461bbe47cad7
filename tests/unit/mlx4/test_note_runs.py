"""The log of a message has its pieces, up to a number."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.rdma.memory.scatter_gather import NOTED_RUNS, note_runs
from tests.models.fake_host import FakeHost


@pytest.mark.parametrize("count", [1, NOTED_RUNS, NOTED_RUNS + 1, 4 * NOTED_RUNS])
def test_the_log_of_a_message_is_bounded(count: int) -> None:
    host = FakeHost()
    runs = [(0x100000 + 32 * number, 16) for number in range(count)]
    for number, (address, length) in enumerate(runs):
        host.poke(address, number.to_bytes(length, "big"))
    note_runs(host, Kind.DMA_READ, runs, host.views(runs), What.PAYLOAD, 7)
    singles, rest = runs[:NOTED_RUNS], runs[NOTED_RUNS:]
    assert [(event.address, event.length) for event in host.events[:NOTED_RUNS]] == singles
    assert sum(event.length for event in host.events) == 16 * count
    assert all(host.peek(event.address, 16) == event.data[:16] for event in host.events)
    if rest:
        (last,) = host.events[NOTED_RUNS:]
        assert (last.address, last.length, last.obj) == (rest[0][0], 16 * len(rest), 7)
        (told,) = host.facts(Fact.SCATTERED)
        assert (told["qpn"], told["pieces"], told["rest"]) == (7, count, len(rest))
        assert (told["bytes"], told["first"]) == (last.length, 16)
    else:
        assert host.told == []
