"""Sweeps: what can be asked for, where the driver's steps are, going on, tables and pictures."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bluebridge.device.mlx4.settings.config import BLUEFLAME_REGISTERS
from bluebridge.host_tools import cli
from bluebridge.host_tools.arguments import parse
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.study import plot
from bluebridge.host_tools.study import sweep_command as command
from bluebridge.host_tools.study.journal import Journal
from bluebridge.host_tools.study.modelled import blueflame_end, entry_bytes, lines, thresholds
from bluebridge.host_tools.study.request import Row, SweepRequest, Wall, check_files

SMALL = SweepRequest(4, 24, 10, ("on", "off"))


def row(setting: str, size: int) -> Row:
    times = dict.fromkeys(SMALL.profiles, size / 100)
    return Row(setting, size, Wall(50.0 + size, 40.0, 900.5), "fetched early", times)


ROWS = [row(setting, size) for setting in SMALL.settings for size in SMALL.sizes]


def asked(*words: str) -> SweepRequest:
    return SweepRequest.of(parse(["sweep", *words]))


def test_without_options_it_is_the_study_s_script() -> None:
    request = asked()
    assert (request.minimum, request.maximum, request.step) == (4, 1024, 10)
    assert request.settings == ("on", "off")
    assert len(request.sizes) == 103


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plot", "x.gif"], "no plot ends in .gif; end it in .png or .svg"),
        (["--plot", "x"], "no plot ends in nothing"),
        (["-o", "there.dat"], "there.dat exists; name another file, or replace it with --force"),
        (["--plot", "there.svg"], "there.svg exists"),
        (["-o", "nowhere/x.dat"], "no folder nowhere"),
        (["-o", "x.svg", "--plot", "x.svg"], "named twice"),
        (["--profile", "system-y"], "system-y"),
    ],
)
def test_files_and_profiles_are_checked_before_anything_boots(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("there.dat", "there.svg"):
        Path(name).write_text("precious")
    assert cli.main(["sweep", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert Path("there.dat").read_text() == "precious"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["there.dat", "there.svg"]


def test_force_allows_what_exists(tmp_path: Path) -> None:
    there = tmp_path / "there.dat"
    there.write_text("old")
    options = parse(["sweep", "--force", "-o", str(there)])
    check_files(options)
    options.force = False
    with pytest.raises(UsageError):
        check_files(options)


# Thresholds: the study's section 3.3 and table 4.1.


def test_an_entry_is_as_long_as_the_driver_makes_it() -> None:
    assert [entry_bytes(each) for each in (1, 12, 13, 28, 29, 88, 208)] == [
        48, 48, 64, 64, 80, 128, 256,
    ]  # fmt: skip
    assert [lines(each) for each in (1, 28, 29, 88, 89, 148, 149, 208)] == [
        1, 1, 2, 2, 3, 3, 4, 4,
    ]  # fmt: skip


def test_steps_are_where_table_4_1_has_them() -> None:
    assert [step.payload for step in thresholds(asked())] == [28, 88, 148, 208, 220]


@pytest.mark.parametrize(
    ("register", "end"), [(128, 28), (256, 88), (512, 208), (1024, 220), (4096, 220)]
)
def test_the_end_moves_with_the_register(register: int, end: int) -> None:
    assert blueflame_end(register // 2, 220) == end
    found = thresholds(asked("--blueflame-size", str(register)))
    assert end in [step.payload for step in found]


def test_a_larger_register_is_of_use_with_more_inline() -> None:
    assert blueflame_end(512, 912) == 448
    found = thresholds(asked("--blueflame-size", "1024", "--inline", "912"))
    assert found[-2].payload == 448
    assert found[-1].text == "inline ends"


# Going on.


def test_a_sweep_that_was_stopped_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "x.dat"
    with Journal(output, SMALL) as journal:
        for each in ROWS[:4]:
            journal.add(each)
        assert list(journal.todo()) == [("off", [14, 24])]
    with journal.path.open("a") as file:
        file.write('{"setting": "off", "si')  # killed in the middle of a line
    with Journal(output, SMALL) as journal:
        assert journal.rows == ROWS[:4]
        journal.add(ROWS[4])
    with Journal(output, SMALL) as journal:
        assert journal.rows == ROWS[:5]
        journal.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_row_is_kept_though_a_signal_comes_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Journal(tmp_path / "x.dat", SMALL) as journal:
        monkeypatch.setattr(os, "fsync", stopped)
        try:
            journal.add(ROWS[0])
        finally:
            assert journal.kept() == 1
    monkeypatch.undo()
    with Journal(tmp_path / "x.dat", SMALL) as journal:
        assert journal.rows == ROWS[:1]


def test_a_sweep_without_a_row_leaves_nothing(tmp_path: Path) -> None:
    with Journal(tmp_path / "x.dat", SMALL):
        assert (tmp_path / "x.dat.part").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps(replace(SMALL, step=9).as_json()) + "\n", "with other options"),
        ("precious\n", "no journal of a sweep"),
        (json.dumps(SMALL.as_json()) + '\n{"size": 4}\n', "no journal of a sweep"),
    ],
)
def test_another_file_is_left_alone(text: str, said: str, tmp_path: Path) -> None:
    part = tmp_path / "x.dat.part"
    part.write_text(text)
    with pytest.raises(UsageError, match=said), Journal(tmp_path / "x.dat", SMALL):
        pass
    assert part.read_text() == text


def test_two_sweeps_do_not_write_one_file(tmp_path: Path) -> None:
    with Journal(tmp_path / "x.dat", SMALL) as first:
        first.add(ROWS[0])
        with pytest.raises(UsageError, match="under way"), Journal(tmp_path / "x.dat", SMALL):
            pass
        first.add(ROWS[1])


# Results.


def test_the_table_has_the_study_s_columns_first() -> None:
    comment, columns, *body = command.table_text(SMALL, ROWS).splitlines()
    assert comment.startswith("# ")
    assert columns.startswith("# PacketSize, LatTypical, LatBest, LatWorst, ")
    assert body[0].split()[:6] == ["4", "54.00", "40.00", "900.50", "on", "fetched-early"]
    assert [line.partition(" ")[0] for line in body] == ["4", "14", "24", "", "", "4", "14", "24"]
    assert all(len(line.split()) == 8 for line in body if line)


@pytest.mark.full
def test_pictures_show_wall_and_modelled_apart(tmp_path: Path) -> None:
    plot.save_picture(SMALL, ROWS, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    plot.save_picture(SMALL, ROWS, tmp_path / "x.svg")
    first = (tmp_path / "x.svg").read_bytes()
    plot.save_picture(SMALL, ROWS, tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_bytes() == first
    assert first.count(b"<!-- wall time, us -->") == 1
    assert first.count(b"<!-- modelled time, us -->") == len(SMALL.profiles)


def test_the_sizes_of_registers_are_the_device_s() -> None:
    for size in BLUEFLAME_REGISTERS:
        assert parse(["sweep", "--blueflame-size", str(size)]).blueflame_size == size
    with pytest.raises(SystemExit):
        parse(["sweep", "--blueflame-size", "100"])


def test_a_plot_without_matplotlib_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["sweep", "--plot", "x.svg"]) == 1
    said = capsys.readouterr().err
    assert said == (
        "bluebridge: matplotlib is missing; `pip install 'bluebridge[study]'` brings it\n"
    )
    assert list(tmp_path.iterdir()) == []
