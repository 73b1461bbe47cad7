"""`make blueflame`: what is there stays, what is missing is made, and a failure ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.host_tools.arguments import parse
from bluebridge.host_tools.campaigns import blueflame_study as study
from bluebridge.host_tools.sweep.request import SweepRequest

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
