"""The atlas reads programs and kernels and judges them; its table and page say how."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import pytest

from bluebridge.device.layout.faults import Effect, Layer
from bluebridge.device.layout.mlx4.faults import BY_NAME, FAULTS
from bluebridge.host_tools import cli
from bluebridge.host_tools.atlas import atlas_command, cell, outcome, programs
from bluebridge.host_tools.atlas.outcome import Row
from bluebridge.host_tools.errors import LabError

CARD = "connectx3"


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


@pytest.mark.parametrize("card", programs.FAULTS)
def test_each_fault_can_be_given_values(card: str) -> None:
    known = {*cell.QUEUES, *cell.EXAMPLES[card], "vector", "address", "key"}
    for fault in programs.FAULTS[card]:
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


def test_faults_and_programs_are_chosen() -> None:
    chosen = atlas_command.chosen_faults("wc-*", CARD)
    assert {fault.effect for fault in chosen} == {Effect.CQE_STATUS}
    bridges = [fault for fault in FAULTS if fault.layer is Layer.BRIDGE]
    assert len(atlas_command.chosen_faults(None, CARD)) == len(FAULTS) - len(bridges)
    names = [program.name for program in atlas_command.chosen_programs("rping,pyverbs,rping")]
    assert names == ["rping", "pyverbs"]
    assert BY_NAME["hung-wr"] in atlas_command.chosen_faults("hung*", CARD)
    several = atlas_command.chosen_faults("port-down, hung*", CARD)
    assert [fault.name for fault in several] == ["hung-wr", "port-down"]


@pytest.mark.parametrize("card", programs.FAULTS)
def test_each_fault_runs_by_default_and_few_run_under_every_program(card: str) -> None:
    usual, every = (
        [(program.name, fault.name) for program, fault in found]
        for found in (
            atlas_command.chosen(None, None, every=all_, card=card) for all_ in (False, True)
        )
    )
    names = {fault.name for fault in atlas_command.chosen_faults(None, card)}
    assert {fault for _, fault in usual} == {fault for _, fault in every} == names
    assert {program for program, _ in usual} == {*programs.BY_NAME}
    assert {*usual} < {*every} and len(usual) < len(every) / 2
    hung = atlas_command.chosen("hung-wr", None, every=False, card=card)
    assert len(hung) == len(programs.PROGRAMS) - 1


def test_rows_are_objects(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row("hung-wr", "rping", outcome.HUNG, "no")]
    monkeypatch.setattr(atlas_command, "run", lambda *_: rows)
    options = argparse.Namespace(
        list=False, only=None, programs=None, times=1, log=None, quiet=True, json=True,
        all=False, pairs=2, card=CARD,
    )  # fmt: skip
    assert atlas_command.main(options) == 1
    assert json.loads(capsys.readouterr().out)["outcome"] == "hung"


def test_a_run_that_breaks_off_tells_its_rows_in_the_order_of_programs_and_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    came = [("hung-wr", "rping"), ("port-down", "pyverbs"), ("device-fatal", "pyverbs")]

    def run(*_: object) -> Iterator[Row]:
        yield from (row(*names, outcome.CLEAN) for names in came)
        raise LabError("the server has gone")

    monkeypatch.setattr(atlas_command, "run", run)
    assert cli.main(["atlas"]) == LabError.status
    told = [tuple(line.split()[:2]) for line in capsys.readouterr().out.splitlines()[1:]]
    assert [each for each in told if each in came] == [came[2], came[1], came[0]]
