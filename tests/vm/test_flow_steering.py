"""Device-managed flow steering under the unmodified drivers: mlx4_en's rules, ibv_create_flow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.campaigns.conformance.program import PASSED
from tests.campaigns.conformance.runner import Run
from tests.campaigns.conformance.session import DPDK, Session, Setup
from tests.campaigns.conformance.suites import steering
from tests.vm.network import complaints

RULES = Setup("rules", "RoCE v1, steering rules kept by the device", before=DPDK.before)
QUICK = ("ethtool", "raw_ethernet_bw")
PROGRAMS = {p.name: p for p in steering.programs() if p.name.startswith(QUICK)}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A pair whose mlx4_core chose device-managed steering."""
    with Session(RULES, tmp_path_factory.mktemp("logs")) as up:
        assert "Steering Mode 2" in up.pair.b.run("dmesg").text
        yield up


@pytest.mark.brief("ethtool -N names a ring")
@pytest.mark.parametrize("name", PROGRAMS)
def test_stock_programs_steer(session: Session, name: str) -> None:
    entry = Run(session, PROGRAMS[name]).entry()
    assert [verdict.status for verdict in entry.verdicts] == [PASSED], entry
    assert not complaints(session.pair.a) + complaints(session.pair.b)
