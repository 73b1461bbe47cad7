"""docs/atlas.md as the rows of runs make it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from bluebridge.host_tools.atlas import outcome
from bluebridge.host_tools.atlas.outcome import Row
from tests.campaigns import atlas


def row(fault: str, program: str, ended: str, recovered: str = "yes") -> Row:
    """A run of a fault that was taken once."""
    return Row(program, fault, int(ended != outcome.NOT_MET), "", "1", "a|b", ended, recovered)


def test_the_page_counts_outcomes_and_names_what_was_not_met_in_one_table_only() -> None:
    rows = [
        row("hung-wr", "rping", outcome.HUNG),
        row("hung-wr", "rping", outcome.HUNG),
        row("hung-wr", "pyverbs", outcome.CRASHED, "after a restart"),
        row("create-srq-fails", "rping", outcome.NOT_MET),
    ]
    text = atlas.page(rows, "Words of ours.\n\n## Survival\nAn older run.\n")
    assert text.startswith("Words of ours.\n\n## Survival\n") and "older" not in text
    assert "| `hung-wr` | hung ×2 | crashed |" in text
    assert "| `create-srq-fails` | not met | - |" in text
    assert "Runs: 4; recovered without a restart: 3." in text
    details = text.partition("## What was seen")[2]
    assert details.count("| hung-wr | rping |") == 1
    assert "create-srq-fails" not in details and "a\\|b" in details


def test_runs_of_one_card_leave_the_tables_of_the_other() -> None:
    old = atlas.page([row("hung-wr", "rping", outcome.HUNG)], "Words of ours.\n")
    new = dataclasses.replace(row("cqe-foreign", "pyverbs", outcome.CLEAN), card="connectx5")
    both = atlas.page([new], old)
    assert both.startswith(old.rstrip())
    added = both.removeprefix(old.rstrip())
    assert added.lstrip().startswith("## Survival on a ConnectX-5\n")
    assert "| `cqe-foreign` | clean error |" in added and "rping" not in added
    again = atlas.page([row("hung-wr", "rping", outcome.CLEAN)], both)
    assert "| `hung-wr` | clean error |" in again and again.endswith(added)


def test_each_status_and_event_has_a_fault_or_a_reason_why_none() -> None:
    assert len(atlas.NAMES) == 41
    for name in atlas.NAMES:
        assert bool(atlas.produced_by(name)) is not (name in atlas.IMPOSSIBLE), name
    assert set(atlas.IMPOSSIBLE) <= set(atlas.NAMES)
    assert "wire-dead" in atlas.produced_by("IBV_WC_RETRY_EXC_ERR")
    assert atlas.produced_by("IBV_EVENT_PATH_MIG") == ["event-path-mig"]


def test_the_page_says_which_program_reported_a_status() -> None:
    seen = Row("rping", "wire-dead", 1, "wc RETRY_EXC_ERR", "1", "", outcome.CLEAN, "yes")
    said = {name: programs for name, _, programs in atlas.statuses([seen])}
    assert said["IBV_WC_RETRY_EXC_ERR"] == "rping"
    assert said["IBV_WC_RNR_RETRY_EXC_ERR"] == "-"
    assert "| IBV_EVENT_WQ_FATAL | impossible: " in atlas.page([seen], "")


def test_the_page_is_made_of_the_rows_of_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(atlas, "PAGE", tmp_path / "page.md")
    atlas.PAGE.write_text("Words.\n")
    files = [tmp_path / name for name in ("rping", "pyverbs")]
    for file in files:
        found = row("hung-wr", file.name, outcome.HUNG)
        file.write_text(json.dumps(dataclasses.asdict(found)) + "\n")
    assert atlas.main([str(file) for file in files]) == 0
    assert "| fault | pyverbs | rping |" in atlas.PAGE.read_text()
    for wrong in ("{}", "7", "no", '{"fault": 1}'):
        files[0].write_text(wrong)
        assert atlas.main([str(files[0])]) == 2
        assert "line 1, is no row" in capsys.readouterr().err
