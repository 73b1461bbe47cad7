"""`bluebridge sweep` between two guests, with the stock program and with the Python driver's."""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from bluebridge.host_tools import cli
from tests.models.lab_tool import Tool

COLUMNS = 8


def table(path: Path) -> dict[tuple[str, int], list[str]]:
    """The rows of a result by setting and payload."""
    rows = [line.split() for line in path.read_text().splitlines() if line[:1].isdecimal()]
    assert all(len(row) == COLUMNS for row in rows)
    return {(row[4], int(row[0])): row for row in rows}


def test_ib_write_lat_goes_through_blueflame_up_to_208_bytes(tmp_path: Path) -> None:
    """Unmodified libmlx4; the modelled time has the steps of the study's table 4.1."""
    output = tmp_path / "x.dat"
    span = ("--min", "28", "--max", "268", "--step", "60", "--blueflame", "on")
    assert cli.main(["sweep", *span, "--iterations", "20", "-o", str(output), "--quiet"]) == 0
    rows = table(output)
    assert [row[5] for row in rows.values()] == ["BlueFlame"] * 4 + ["doorbell"]
    for row in rows.values():
        typical, best, worst = map(float, row[1:4])
        assert 0 < best <= typical <= worst
    with_blocks = [float(row[7]) for row in rows.values()]
    # 64, 128, 64+128 and 128+128 bytes: a second store block is dearer than a fuller one.
    steps = [after - before for before, after in pairwise(with_blocks[:4])]
    assert steps[1] > steps[0] > 0
    assert steps[1] > steps[2] > 0
    assert list(tmp_path.iterdir()) == [output]


def test_a_stopped_sweep_goes_on_and_its_steps_move_with_the_register(
    tool: Callable[..., Tool], tmp_path: Path
) -> None:
    """Registers of 256 bytes: entries of at most 128, payloads of at most 88."""
    output = tmp_path / "x.dat"
    span = ["--min", "28", "--max", "148", "--step", "40", "--iterations", "500"]
    setting = ["--tool", "guest", "--blueflame", "on", "--blueflame-size", "256"]
    words = ["sweep", *span, *setting, "-o", str(output)]
    part = output.with_name("x.dat.part")
    bluebridge = tool(*words)
    bluebridge.wait_until(lambda: part.exists() and part.read_text().count("\n") >= 2, "a row")
    first = part.read_text()
    bluebridge.signal(signal.SIGINT)
    status, said = bluebridge.finish(60)
    assert status == 130
    assert "of 4 are kept in" in said
    bluebridge.assert_nothing_left()
    assert not output.exists()
    assert part.read_text().startswith(first)
    assert cli.main([*words, "--quiet"]) == 0
    assert [row[5] for row in table(output).values()] == ["BlueFlame"] * 2 + ["doorbell"] * 2
    assert not part.exists()
