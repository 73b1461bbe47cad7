"""bluebridge.guest.latency: a ping-pong over our own driver, without guests."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.drivers.hca.posting.blueflame import BlueFlameUse
from bluebridge.guest.latency import PingPong
from bluebridge.host_tools.analyzer.analysis import PostedBy, transfers
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.wire.conftest import StartServer

TURNS = 10
_SWITCH_SECONDS = 1e-4
"""Both sides spin in one interpreter."""


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Let the interpreter turn to the other thread soon."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(
    ("use", "ways"),
    [
        (
            BlueFlameUse(),
            [PostedBy.BLUEFLAME, PostedBy.BLUEFLAME, PostedBy.DOORBELL, PostedBy.DOORBELL],
        ),
        (
            BlueFlameUse(wrong_page=True),
            [PostedBy.FALLBACK, PostedBy.FALLBACK, PostedBy.DOORBELL, PostedBy.DOORBELL],
        ),
        (BlueFlameUse(old_size_rule=True), [PostedBy.BLUEFLAME, *[PostedBy.DOORBELL] * 3]),
        (None, [PostedBy.DOORBELL] * 4),
    ],
)
def test_each_payload_goes_the_way_it_should(
    use: BlueFlameUse | None, ways: list[PostedBy], start_server: StartServer, tmp_path: Path
) -> None:
    hcas = [word for name in "ab" for word in ("--hca", f"name={name},socket={tmp_path / name}")]
    log = ("--log", str(tmp_path / "log"), "--blueflame", "on")
    server = start_server("bluebridge.device", *hcas, *log)
    sizes = (1, 208, 209, 4000)
    with (
        open_hca(SocketBus(tmp_path / "a"), blueflame=use) as first,
        open_hca(SocketBus(tmp_path / "b"), blueflame=use) as second,
    ):
        sides = [PingPong(context, 220) for context in (first, second)]
        for side, peer in zip(sides, reversed(sides), strict=True):
            side.connect(peer.end)
        for size in sizes:
            _play(sides, size)
    assert server.terminate() == 0
    seen = list(transfers(tmp_path / "log"))
    for size, way in zip(sizes, ways, strict=True):
        found = [each.posted_by for each in seen if each.length == size]
        assert len(found) == 2 * TURNS
        assert found.count(way) == len(found)


def _play(sides: list[PingPong], size: int) -> None:
    """One payload; both sides time each round trip."""
    for side in sides:
        side.prepare(size)
    times: list[list[float]] = []
    server = threading.Thread(target=lambda: times.append(sides[0].play(size, TURNS, first=False)))
    server.start()
    times.append(sides[1].play(size, TURNS, first=True))
    server.join()
    assert [len(each) for each in times] == [TURNS, TURNS]
    assert min(map(min, times)) > 0
