"""A test for each fault of `--bluebridge-atlas`; pytest collects this file in place of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bluebridge.device import cards
from bluebridge.device.layout.mlx4.faults import BY_NAME
from bluebridge.host_tools.atlas.atlas_command import chosen_faults
from bluebridge.host_tools.atlas.cell import Cell
from bluebridge.host_tools.atlas.outcome import CRASHED, HUNG
from bluebridge.host_tools.atlas.stage import NO, Stage
from bluebridge.host_tools.pytest_plugin.atlas import FILE, PROGRAM
from bluebridge.host_tools.pytest_plugin.lab import Lab

pytestmark = [pytest.mark.may_crash, pytest.mark.timeout(300)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each fault that was chosen."""
    chosen = chosen_faults(metafunc.config.getoption("--bluebridge-atlas"), cards.DEFAULT)
    metafunc.parametrize("name", [fault.name for fault in chosen])


@pytest.fixture(scope="module")
def stage(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A pair with the program in both guests."""
    with lab.pair(vfio=False) as pair:
        file = request.config.stash[FILE]
        if file is not None:
            for machine in pair.machines:
                machine.agent.put(file, "/tmp/", 0o755)
        yield Stage(pair, rnbd=False)


def test_survives(stage: Stage, name: str, request: pytest.FixtureRequest) -> None:
    """The program ends, whatever it says, and all is well again once the fault is over."""
    row = Cell(stage, request.config.stash[PROGRAM], BY_NAME[name]).run()
    print(f"{name}: {row.outcome}, {row.seen or 'nothing seen'}; kernel: {row.kernel or '-'}")
    assert row.outcome not in (HUNG, CRASHED), f"{row.outcome}: {row.kernel}"
    assert row.recovered != NO
