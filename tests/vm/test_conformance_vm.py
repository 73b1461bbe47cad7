"""The conformance runner on a pair: verdicts of programs that pass, fail, hang or never start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.conformance.program import FAILED, PASSED, Program
from tests.campaigns.conformance.runner import Patience, Run
from tests.campaigns.conformance.session import ROCE, Session
from tests.campaigns.conformance.suites import everything

IMPATIENT = Patience(ready=2.0, end=4.0)
"""Waits shorter than a run's, since nothing is going to happen."""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A pair with RoCE up."""
    with Session(ROCE, tmp_path_factory.mktemp("logs")) as up:
        yield up


def test_a_program_of_the_table_passes(session: Session) -> None:
    found = next(program for _, program in everything() if program.name == "ibv_rc_pingpong -e")
    entry = Run(session, found).entry()
    assert [verdict.status for verdict in entry.verdicts] == [PASSED], entry
    assert entry.key == "roce/pingpong/ibv_rc_pingpong -e"


@pytest.mark.parametrize(
    ("client", "server", "ready", "reason"),
    [
        ("echo no luck; exit 3", "", "", "status 3: no luck"),
        ("echo well; sleep 60", "", "", "no end after 2 s: well"),
        ("true", "sleep 60", "false", "the server was not ready in time"),
        ("true", "sleep 60", "true", "the server did not end after the client"),
        ("true", "echo broken; exit 4", "true", "status 4: broken"),
    ],
)
def test_what_goes_wrong_has_a_reason(
    session: Session, client: str, server: str, ready: str, reason: str
) -> None:
    run = Run(session, Program("own", "x", client, server, ready, limit=2), IMPATIENT)
    assert [verdict.reason for verdict in run.entry().verdicts if verdict.reason] == [reason]
    assert run.broken and run.texts
    gone = "until ! ps -o comm | grep -qx sleep; do sleep 0.05; done"
    assert session.pair.a.agent.run(gone, timeout=20).status == 0, "a server outlived its program"


def test_what_says_nothing_is_run_again(session: Session) -> None:
    client = "echo x >> /tmp/runs; [ $(wc -l < /tmp/runs) = 3 ] && echo good || echo uneven clock"
    program = Program(
        "own", "again", client, expect="good", repeat="uneven", after="rm -f /tmp/runs"
    )
    assert [each.status for each in Run(session, program).entry().verdicts] == [PASSED]


def test_kernel_messages_fail_a_program(session: Session) -> None:
    client = "echo 'mlx4_core: command 0x4 timed out' > /dev/kmsg"
    (fine, complaint) = Run(session, Program("own", "kernel", client)).entry().verdicts
    assert fine.status == PASSED
    assert complaint.status == FAILED and "command 0x4 timed out" in complaint.reason


def test_files_and_leftovers(session: Session, tmp_path: Path) -> None:
    program = Program(
        "own",
        "files",
        "cat /tmp/given; touch /tmp/mess",
        expect="^content$",
        files=(("/tmp/given", b"content\n"),),
        after="rm -f /tmp/mess",
    )
    assert [each.status for each in Run(session, program).entry().verdicts] == [PASSED]
    assert session.pair.b.agent.run("ls /tmp/mess").status != 0


def test_a_dead_guest_is_a_verdict_too(session: Session) -> None:
    """Last in this file: the session is over afterwards."""
    crash = Program("own", "crash", "echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger")
    run = Run(session, crash)
    (found,) = run.entry().verdicts
    assert found.status == FAILED and "guest b" in found.reason
    assert run.broken
