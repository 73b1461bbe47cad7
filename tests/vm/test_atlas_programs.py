"""Programs of the atlas that the guest's root lacks: each runs, and says what a fault did to it."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.faults import BY_NAME
from bluebridge.host_tools.atlas import programs, stage
from bluebridge.host_tools.atlas.cell import Cell
from bluebridge.host_tools.atlas.outcome import CLEAN, SURVIVED
from bluebridge.host_tools.errors import Reporter

pytestmark = pytest.mark.long


def test_ucx_and_libfabric_run_and_say_what_failed() -> None:
    chosen = [program for program in programs.PROGRAMS if program.messages]
    with stage.opened(chosen, "connectx3", None, Reporter(quiet=True)) as opened:
        for program in chosen:
            for fault, outcome in (("command-late", SURVIVED), ("qp-to-rtr-fails", CLEAN)):
                row = Cell(opened, program, BY_NAME[fault]).run()
                assert (row.outcome, row.recovered, row.produced) == (outcome, stage.YES, 1), row
