"""A process of NTRDMA is killed or parts in each state of its port; the other one lives on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.ntrdma.port import PortState
from tests.models.server import ServerProcess
from tests.wire import ntrdma_pair
from tests.wire.ntrdma_lives import Lives, lives

_MORE_KILOBYTES = 2048
"""By which a process may grow: caches of the interpreter."""


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    """One whose stock is counted, with bridges that note what the hardware would not bear."""
    log = folder / "log"
    with ntrdma_pair.server(folder, "--ntb-model", "intel-gen1", "--log", str(log)) as process:
        yield process
    hangs = [event for event in LogReader(log) if event.fact is Fact.BRIDGE_MIGHT_HANG]
    assert not hangs, "accesses that would have hung the hardware"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("survival")


@pytest.fixture(scope="module")
def both(server: ServerProcess, folder: Path) -> Iterator[Lives]:
    with lives(folder, "ntb+dma") as found:
        yield found


def resident(pid: int) -> int:
    """Kilobytes of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


@pytest.mark.parametrize("turn", [0, pytest.param(1, marks=pytest.mark.full)])
def test_the_peer_ends_in_each_state(server: ServerProcess, both: Lives, turn: int) -> None:
    """After each end the next peer is found, and what it writes and reads is right."""
    both.run([])
    before = both.holdings(), server.open_files(), resident(server.pid)
    ends = [f"{int(state)}:{('stop', 'close')[(state + turn) % 2]}" for state in PortState]
    both.run(ends)
    after = both.holdings()
    for what in ("files", "threads"):
        assert after[what] == before[0][what]
    assert after["kilobytes"] < before[0]["kilobytes"] + _MORE_KILOBYTES
    assert server.open_files() == before[1]
    assert resident(server.pid) < before[2] + _MORE_KILOBYTES
