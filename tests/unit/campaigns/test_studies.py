"""The bench and `make blueflame`: what they make of what they measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.host_tools.arguments import parse
from bluebridge.host_tools.study.request import SweepRequest
from bluebridge.images.cache import HOME
from tests.campaigns import blueflame_study as study
from tests.campaigns.bench import rdma
from tests.campaigns.bench.page import PAGE, Figure, Section, quotes, read, with_tables


def test_the_two_sides_take_turns_and_medians_count() -> None:
    calls: list[str] = []
    values = {"a": iter((1.0, 9.0, 2.0)), "b": iter((4.0, 5.0, 60.0))}

    def measure(name: str) -> float:
        calls.append(name)
        return next(values[name])

    assert rdma.in_turn(lambda: measure("a"), lambda: measure("b"), 3) == (2.0, 5.0)
    assert calls == ["a", "b"] * 3


def test_goals() -> None:
    assert Figure("t", 19.9, "x", least=20).row() == ("t", "19.9 x", ">= 20 x", "fell short")
    assert Figure("t", 1234.0, "us", most=1234).row() == ("t", "1,234 us", "<= 1234 us", "met")
    assert Figure("t", 1.0, "us").row() == ("t", "1 us", "", "")


def test_a_run_changes_its_section_of_the_page_only() -> None:
    rest = "<!-- end -->\n\n<!-- figures: rtrs -->\n<!-- end -->\n"
    page = f"Said.\n\n<!-- figures: hca -->\nold\n{rest}"
    changed = with_tables(page, {"hca": Section("here", "today", [Figure("t", 1.0, "us")])})
    assert changed.startswith("Said.\n\n<!-- figures: hca -->\nhere; today.\n\n| figure |")
    assert changed.endswith(f"| t | 1 us |  |  |\n{rest}")


def test_pages_say_what_was_measured() -> None:
    """The tables are those of docs/benchmarks.json, and other pages quote it."""
    results = read()
    assert with_tables(PAGE.read_text(), results) == PAGE.read_text()
    for page, sentence in quotes(results).items():
        assert sentence in " ".join((HOME / page).read_text().split()), page


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
