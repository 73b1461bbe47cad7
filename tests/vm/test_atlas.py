"""The short form of the atlas: twenty faults under unmodified programs, each undone again."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bluebridge.device.layout.mlx4.faults import BY_NAME
from bluebridge.host_tools.atlas import programs
from bluebridge.host_tools.atlas.cell import Cell
from bluebridge.host_tools.atlas.outcome import CLEAN, CRASHED, HUNG, SURVIVED, Row
from bluebridge.host_tools.atlas.stage import RESTARTED, YES, Stage
from bluebridge.host_tools.lab.pair import Pair
from tests.models.lab_tool import Tool

pytestmark = [pytest.mark.devices("hca", vfio=False)]

EXPECTED = {
    "ibv_rc_pingpong": {
        "reg-mr-fails": (CLEAN, "Couldn't register MR"),
        "create-cq-fails": (CLEAN, "Couldn't create CQ"),
        "qp-to-rtr-fails": (CLEAN, "Failed to modify QP to RTR"),
        "command-late": (SURVIVED, ""),
        "mad-fails": (SURVIVED, ""),
        "hung-wr": (HUNG, ""),
        "cqe-late": (SURVIVED, ""),
        "payload-flip": (SURVIVED, ""),
        "ack-lost": (SURVIVED, ""),
        "wc-rem-op-err": (CLEAN, "wc REM_OP_ERR"),
    },
    "pyverbs": {
        "query-port-fails": (CLEAN, "Failed to modify QP"),
        "wc-rem-access-err": (CLEAN, "wc REM_ACCESS_ERR"),
        "wc-general-err": (CLEAN, "wc GENERAL_ERR"),
        "key-locked": (CLEAN, "wc LOC_PROT_ERR"),
        "dma-refused": (CLEAN, "wc LOC_PROT_ERR"),
        "event-qp-fatal": (SURVIVED, "event QP_FATAL"),
        "event-srq-limit": (SURVIVED, "event SRQ_LIMIT_REACHED"),
        "port-flap": (SURVIVED, "event PORT_ERR, event PORT_ACTIVE"),
        "cq-overrun": (HUNG, "event CQ_ERR"),
        "device-fatal": (HUNG, "event DEVICE_FATAL"),
    },
}
PATIENCE = 8.0


def open_files(pair: Pair) -> Counter[str]:
    """The files that the device server has open, by kind; the log's files have running numbers."""
    files = Counter[str]()
    for file in Path(f"/proc/{pair.server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            files[re.sub(r"\d+", "", str(file.readlink()))] += 1
    return files


def run(stage: Stage, program: str, fault: str) -> Row:
    """Run a program under a fault, and do not wait for long."""
    return Cell(stage, replace(programs.BY_NAME[program], limit=PATIENCE), BY_NAME[fault]).run()


def test_twenty_faults_are_seen_and_leave_nothing(pair: Pair) -> None:
    stage = Stage(pair, rnbd=False)
    before = open_files(pair)
    rows = [run(stage, program, fault) for program, named in EXPECTED.items() for fault in named]
    assert len(rows) == 20
    wrong = [
        row
        for row in rows
        if row.outcome != EXPECTED[row.program][row.fault][0]
        or EXPECTED[row.program][row.fault][1] not in row.seen
        or (row.recovered, row.produced > 0) != (YES, True)
    ]
    assert wrong == []
    assert pair.server.tell("armed") == pair.server.tell("rules") == []
    deadline = time.monotonic() + PATIENCE  # a client's files are closed a moment after it left
    while open_files(pair) != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert open_files(pair) == before


@pytest.mark.may_crash
def test_a_guest_that_crashes_is_started_anew_and_its_peer_is_not(pair: Pair) -> None:
    stage = Stage(pair, rnbd=False)
    peer = pair.b.pid
    crash = replace(
        programs.BY_NAME["ibv_rc_pingpong"], client="echo c > /proc/sysrq-trigger", limit=20.0
    )
    row = Cell(stage, crash, BY_NAME["command-late"]).run()
    assert (row.outcome, row.recovered) == (CRASHED, RESTARTED)
    assert "panic" in row.kernel
    assert pair.b.pid == peer
    assert run(stage, "ibv_rc_pingpong", "reg-mr-fails").recovered == YES


def test_two_programs_have_pairs_of_their_own_and_one_table(tool: Callable[..., Tool]) -> None:
    """Rows of both come as they are, and each is one of the choice."""
    words = "--only", "reg-mr-fails,mad-fails", "--programs", "ibv_rc_pingpong,ibv_srq_pingpong"
    bluebridge = tool("atlas", *words, "--json")
    status, output = bluebridge.finish()
    assert status == 0, bluebridge.errors
    rows = [json.loads(line) for line in output.splitlines()]
    assert {(row["program"], row["fault"], row["outcome"]) for row in rows} == {
        ("ibv_rc_pingpong", "reg-mr-fails", CLEAN),
        ("ibv_rc_pingpong", "mad-fails", SURVIVED),
        ("ibv_srq_pingpong", "reg-mr-fails", CLEAN),
        ("ibv_srq_pingpong", "mad-fails", SURVIVED),
    }
    assert len(rows) == 4
    assert bluebridge.errors.count("are up") == 2
    bluebridge.assert_nothing_left()
