"""Unmodified drivers and programs between two HCAs that are joined by RoCE v2 packets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bluebridge.host_tools.campaigns.conformance.program import PASSED
from bluebridge.host_tools.campaigns.conformance.runner import Run
from bluebridge.host_tools.campaigns.conformance.session import Session
from bluebridge.host_tools.campaigns.conformance.setups import PACKETS
from bluebridge.host_tools.campaigns.conformance.suites import everything

LOSSY = "ucmatose -c 4 -C 100 -S 4096"
LOSS = 0.02
COUNTERS = "/sys/class/infiniband/mlx4_0/ports/1/hw_counters"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A pair with RoCE v2 up."""
    with Session(PACKETS, tmp_path_factory.mktemp("logs")) as up:
        yield up


def passes(session: Session, name: str) -> bool:
    """Run a program of the conformance run; return whether it did what it should."""
    found = next(
        program for setup, program in everything() if setup is PACKETS and program.name == name
    )
    entry = Run(session, found).entry()
    return [verdict.status for verdict in entry.verdicts] == [PASSED]


@pytest.mark.parametrize(
    "name",
    [
        "ibv_srq_pingpong -e",
        "ibv_uc_pingpong",
        "rping -C 100 -V over IPv6",
        "udaddy -c 4 -C 20",
        "ib_send_bw -c XRC -s 4096 -n 200",
    ],
)
def test_a_stock_program_passes(session: Session, name: str) -> None:
    assert passes(session, name)


def test_a_stock_program_gets_what_it_sent_while_packets_vanish(session: Session) -> None:
    """The guests' own driver counts what was sent again."""
    with session.pair.hardware.drop("a", probability=LOSS, seed=7) as rule:
        assert passes(session, LOSSY)
        assert rule.taken > 10, rule.counts()
    again = [machine.run(f"cat {COUNTERS}/sq_num_to").text for machine in session.pair.machines]
    assert sum(map(int, again)) > 0
