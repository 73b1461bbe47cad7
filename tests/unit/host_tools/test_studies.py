"""The bench and `make blueflame`: what they make of what they measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.arguments import parse
from bluebridge.host_tools.campaigns import blueflame_study as study
from bluebridge.host_tools.campaigns.bench import doorbell_replies, ntrdma_network, rdma
from bluebridge.host_tools.campaigns.bench.figures import at_least, plain
from bluebridge.host_tools.ntrdma.network import Measured
from bluebridge.host_tools.sweep.request import SweepRequest


def test_the_two_sides_take_turns_and_medians_count() -> None:
    calls: list[str] = []
    values = {"a": iter((1.0, 9.0, 2.0)), "b": iter((4.0, 5.0, 60.0))}

    def measure(name: str) -> float:
        calls.append(name)
        return next(values[name])

    assert rdma.in_turn(lambda: measure("a"), lambda: measure("b"), 3) == (2.0, 5.0)
    assert calls == ["a", "b"] * 3


def test_goals_that_are_a_least() -> None:
    assert at_least(plain("k", "t", 19.9, "x"), 20).verdict() == "fell short"
    met = at_least(plain("k", "t", 20.0, "x"), 20)
    assert (met.verdict(), met.goal) == ("met", ">= 20 x")


def _ring(time: float, device: str, value: int = 1, bar: int = 0) -> Event:
    data = value.to_bytes(4, "little")
    return Event(0, time, device, Kind.MMIO_WRITE, bar, What.OTHER, 0, 0x104, 4, data)


def test_an_answer_is_the_peers_next_ring_and_two_rings_tell_nothing() -> None:
    events = [
        *(_ring(0.0, "b.ntb4"), _ring(1.0, "a.ntb4"), _ring(1.5, "b.ntb4")),
        *(_ring(1.6, "a.ntb4", bar=2), _ring(1.7, "a.ntb4", value=0)),
        *(_ring(1.8, "b.ntb4"), _ring(2.0, "a.ntb4"), _ring(2.25, "b.ntb4")),
    ]
    assert doorbell_replies.reply_times(events) == [0.5, 0.25]


def test_a_way_over_the_bridge_has_figures_with_names_of_their_own() -> None:
    ours = Measured("NTRDMA, ntb+dma", 1500, 900.0, 800.0, 5.0, 6.0, 12.0)
    kernels = Measured("ntb_netdev use_dma=1", 1500, 700.0, 600.0, 2.0, 3.0)
    found = [each for row in (ours, kernels) for each in ntrdma_network.figures_of(row)]
    assert [each.value for each in found] == [900.0, 5.0, 6.0, 12.0, 700.0, 2.0, 3.0]
    assert len({each.key for each in found}) == len({each.title for each in found}) == 7


SWEEPS = [
    f"{name}.dat" for name in ("latencyResult", "system-x", "first-attempt", "size-rule", "sends")
]
SENDS = [
    file.format(way)
    for way in ("on", "off", "wrong-page")
    for file in ("sends-{}.html", "sends-{}.txt", "analyzer-{}.txt")
]
FILES = [*SWEEPS, "table-3.1.txt", "table-4.1.txt", "table-4.3.txt", *SENDS]


def test_what_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in FILES:
        (tmp_path / name).write_text("precious")
    assert study.main([str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)
    assert all((tmp_path / name).read_text() == "precious" for name in FILES)
    assert "all of it is in" in capsys.readouterr().out


def test_a_step_that_fails_ends_it_and_leaves_no_half_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latencyResult.dat").write_text("precious")
    (tmp_path / "logs" / "latencyResult" / "on").mkdir(parents=True)
    assert study.main([str(tmp_path)]) == 2
    assert "holds no bus log" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latencyResult.dat", "logs"]


def test_each_of_its_sweeps_can_be() -> None:
    for each in study.SWEEPS:
        request = SweepRequest.of(parse(["sweep", *each.words.split()]))
        assert "off" in request.settings
        assert len(request.settings) == 2
