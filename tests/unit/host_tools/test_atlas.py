"""What the atlas reads out of programs and kernels, how it judges, what its table and page say."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.layout.mlx4.faults import BY_NAME, FAULTS, Effect, Layer
from bluebridge.host_tools import cli
from bluebridge.host_tools.atlas import atlas_command, cell, outcome, programs
from bluebridge.host_tools.atlas.outcome import Row
from bluebridge.host_tools.errors import LabError, UsageError


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("Failed status remote access error (10) for wr_id 2", "wc REM_ACCESS_ERR"),
        ("Completion with error\n Failed status 12: wr_id 0 syndrom 0x81", "wc RETRY_EXC_ERR"),
        ("cq completion failed with status 5", "wc WR_FLUSH_ERR"),
        ("event 1\nevent 8\nevent 1\n", "event QP_FATAL, event DEVICE_FATAL"),
        ("  event_type port error (10)", "event port error"),
        ("1000 iters in 0.5 seconds = 500.00 usec/iter", ""),
        ("Failed status (99)", ""),
    ],
)
def test_statuses_and_events_are_read(said: str, seen: str) -> None:
    assert outcome.seen_as(said) == seen


def test_the_errno_of_a_program_is_named() -> None:
    assert outcome.status_text(1, "Couldn't register MR: Cannot allocate memory") == "1 ENOMEM"
    assert outcome.status_text(1, "errno=22") == "1 EINVAL"
    assert outcome.status_text(0, "done") == "0"
    assert outcome.status_text(None, "") == "-"


def test_what_a_program_said_of_its_failure_is_found() -> None:
    said = "Failed to modify QP to RTR\nCouldn't connect to remote QP\n  remote address: LID 0\n"
    assert outcome.last_words(1, said) == "Couldn't connect to remote QP"
    assert outcome.last_words(1, "a\nb\n") == "b"
    ucx = "[1795699388.38] [a:812  :0]   perftest.c:348  UCX  ERROR failed to connect\n"
    ucx += " 2  /lib/libucs.so.0(ucs_fatal_error_format+0x100) [0x7f]\n"
    assert outcome.last_words(255, ucx) == "UCX ERROR failed to connect"
    assert outcome.last_words(0, said) == outcome.last_words(1, "") == ""


def test_the_kernels_first_complaint_is_found() -> None:
    raw = (
        "<6>[    1.0] mlx4_core 0000:03:00.0: all is well\n"
        "<4>[    1.1] random: something else\n"
        "<11>[    1.2] mlx4_core 0000:03:00.0: command 0xd failed: fw status = 0x8\n"
        "<3>[    1.3] mlx4_core: SW2HW_MPT failed (-12)\n"
    )
    assert outcome.kernel_line(raw) == "mlx4_core 0000:03:00.0: command 0xd failed: fw status = 0x8"
    assert outcome.kernel_line("<6>[ 1.0] mlx4_en: Link Up\n") == ""


@pytest.mark.parametrize(
    ("produced", "status", "word"),
    [
        (0, 0, outcome.NOT_MET),
        (1, 0, outcome.SURVIVED),
        (1, 1, outcome.CLEAN),
        (1, None, outcome.HUNG),
        (1, 139, outcome.CRASHED),
        (1, 255, outcome.CLEAN),
    ],
)
def test_how_it_ended(produced: int, status: int | None, word: str) -> None:
    assert outcome.judge(produced, status) == word


def test_each_fault_can_be_given_values() -> None:
    known = {*cell.QUEUES, *cell.EXAMPLES, "vector", "address", "key"}
    for fault in FAULTS:
        assert {*fault.needs} <= known, fault.name
    before = [fault.name for fault in FAULTS if cell.is_before(fault)]
    assert "reg-mr-fails" in before and "hung-wr" not in before


def test_programs_have_names_that_rdma_resource_cuts_as_the_kernel_does() -> None:
    assert len(programs.BY_NAME) == len(programs.PROGRAMS) >= 7
    assert all(len(program.owner) <= 15 for program in programs.PROGRAMS)
    assert all(bool(program.server) == bool(program.ready) for program in programs.PROGRAMS)


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
    text = outcome.page(rows, "Words of ours.\n\n## Survival\nAn older run.\n")
    assert text.startswith("Words of ours.\n\n## Survival\n") and "older" not in text
    assert outcome.page(rows).startswith("# The atlas")
    assert "| `hung-wr` | hung ×2 | crashed |" in text
    assert "| `create-srq-fails` | not met | - |" in text
    assert "Runs: 4; recovered without a restart: 3." in text
    details = text.partition("## What was seen")[2]
    assert details.count("| hung-wr | rping |") == 1
    assert "create-srq-fails" not in details and "a\\|b" in details
    assert len(outcome.table(rows)) == 5


def test_faults_and_programs_are_chosen() -> None:
    chosen = atlas_command.chosen_faults("wc-*")
    assert {fault.effect for fault in chosen} == {Effect.CQE_STATUS}
    bridges = [fault for fault in FAULTS if fault.layer is Layer.BRIDGE]
    assert len(atlas_command.chosen_faults(None)) == len(FAULTS) - len(bridges)
    names = [program.name for program in atlas_command.chosen_programs("rping,pyverbs,rping")]
    assert names == ["rping", "pyverbs"]
    assert BY_NAME["hung-wr"] in atlas_command.chosen_faults("hung*")
    several = atlas_command.chosen_faults("port-down, hung*")
    assert [fault.name for fault in several] == ["hung-wr", "port-down"]


def test_each_fault_runs_by_default_and_few_run_under_every_program() -> None:
    usual, every = (
        [(program.name, fault.name) for program, fault in found]
        for found in (atlas_command.chosen(None, None, every=all_) for all_ in (False, True))
    )
    names = {fault.name for fault in atlas_command.chosen_faults(None)}
    assert {fault for _, fault in usual} == {fault for _, fault in every} == names
    assert {program for program, _ in usual} == {*programs.BY_NAME}
    assert {*usual} < {*every} and len(usual) < len(every) / 2
    assert len(atlas_command.chosen("hung-wr", None, every=False)) == len(programs.PROGRAMS) - 1


def test_rows_are_objects(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row("hung-wr", "rping", outcome.HUNG, "no")]
    monkeypatch.setattr(atlas_command, "run", lambda *_: rows)
    options = argparse.Namespace(
        list=False, only=None, programs=None, times=1, log=None, quiet=True, json=True, page=None,
        rows=None, all=False, minutes=None, pairs=2,
    )  # fmt: skip
    assert atlas_command.main(options) == 1
    assert json.loads(capsys.readouterr().out)["outcome"] == "hung"


def test_a_run_that_breaks_off_leaves_its_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(*_: object) -> Iterator[Row]:
        yield row("hung-wr", "rping", outcome.HUNG)
        raise LabError("the server has gone")

    monkeypatch.setattr(atlas_command, "run", run)
    assert cli.main(["atlas", "--page", str(tmp_path / "page.md")]) == LabError.status
    assert "| `hung-wr` | hung |" in (tmp_path / "page.md").read_text()


def test_rows_that_came_out_of_order_are_told_in_that_of_programs_and_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    came = [("hung-wr", "rping"), ("hung-wr", "pyverbs"), ("device-fatal", "pyverbs")]
    rows = [dataclasses.asdict(row(*names, outcome.CLEAN)) for names in came]
    (tmp_path / "rows").write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert cli.main(["atlas", "--rows", str(tmp_path / "rows")]) == 0
    told = [tuple(line.split()[:2]) for line in capsys.readouterr().out.splitlines()[1:]]
    assert [each for each in told if each in came] == [came[2], came[1], came[0]]


def test_each_status_and_event_has_a_fault_or_a_reason_why_none() -> None:
    assert len(outcome.NAMES) == 41
    for name in outcome.NAMES:
        assert bool(outcome.produced_by(name)) is not (name in outcome.IMPOSSIBLE), name
    assert set(outcome.IMPOSSIBLE) <= set(outcome.NAMES)
    assert "wire-dead" in outcome.produced_by("IBV_WC_RETRY_EXC_ERR")
    assert outcome.produced_by("IBV_EVENT_PATH_MIG") == ["event-path-mig"]


def test_the_page_says_which_program_reported_a_status() -> None:
    seen = Row("rping", "wire-dead", 1, "wc RETRY_EXC_ERR", "1", "", outcome.CLEAN, "yes")
    said = {name: programs for name, _, programs in outcome.statuses([seen])}
    assert said["IBV_WC_RETRY_EXC_ERR"] == "rping"
    assert said["IBV_WC_RNR_RETRY_EXC_ERR"] == "-"
    assert "| IBV_EVENT_WQ_FATAL | impossible: " in outcome.page([seen])


def test_the_page_is_made_of_earlier_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row("hung-wr", name, outcome.HUNG) for name in ("rping", "pyverbs")]
    files = [tmp_path / each.program for each in rows]
    for file, each in zip(files, rows, strict=True):
        file.write_text(json.dumps(dataclasses.asdict(each)) + "\n")
    written = tmp_path / "page.md"
    words = ["atlas", "--rows", *map(str, files), "--page", str(written)]
    assert cli.main(words) == 0
    assert "| `hung-wr` | hung | hung |" in written.read_text()
    capsys.readouterr()
    for wrong in ("{}", "7", "no", '{"fault": 1}'):
        files[0].write_text(wrong)
        assert cli.main(["atlas", "--rows", str(files[0])]) == UsageError.status
        assert capsys.readouterr().err.count("\n") == 1
    assert cli.main(["atlas", "--rows", "/no/such"]) == UsageError.status
