"""An HCA under mlx4_ib and Linux's Soft-RoCE (rdma_rxe) in another guest, in both roles."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.cli import main
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.programs.perftest import CM_LISTENING
from bluebridge.host_tools.programs.running import wait_until
from bluebridge.host_tools.pytest_plugin.lab import Lab
from bluebridge.host_tools.rtrs.fio import Verification
from bluebridge.host_tools.rtrs.session import mapped
from tests.campaigns.conformance.program import PASSED
from tests.campaigns.conformance.runner import Run
from tests.campaigns.conformance.session import RXE_CLIENT, RXE_SERVER, Session, Setup
from tests.campaigns.conformance.suites import everything

PROGRAMS = (
    "ibv_rc_pingpong -n 200 -c",
    pytest.param("ibv_ud_pingpong -n 200 -c -s 1000", marks=pytest.mark.long),
    "rping over IPv6",
    pytest.param("ib_read_bw -s 65536 -n 20", marks=pytest.mark.long),
    "ib_atomic_bw -A CMP_AND_SWAP -n 200",
    "packets that rxe refused",
)
"""Programs of the conformance run; the last asks rxe's guest about the packets of the others."""
LOSSY = (
    "rping -V -C 50 -S 4096",
    "ib_send_bw -s 65536 -n 20",
    "ib_write_bw -s 65536 -n 20",
    "ib_read_bw -s 65536 -n 20",
)
LOSS = 0.01

KRPING = "python3 -m bluebridge.guest.protocols.krping --ip 10.9.0.1"

SETUPS = [
    pytest.param(RXE_CLIENT, id=RXE_CLIENT.name),
    pytest.param(RXE_SERVER, id=RXE_SERVER.name, marks=pytest.mark.long),
]
CONNECTX5 = ServerOptions(card="connectx5", wire="packets")


@pytest.fixture(scope="module", params=SETUPS)
def session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    """A pair of which one guest has a virtio NIC and Soft-RoCE."""
    setup: Setup = request.param
    with Session(setup, tmp_path_factory.mktemp("logs"), bus_log=True) as up:
        yield up


def run(session: Session, name: str) -> None:
    """Run a program of the conformance run, which must do what it should."""
    found = next(
        program
        for setup, program in everything()
        if setup is session.setup and program.name == name
    )
    entry = Run(session, found).entry()
    assert [verdict.status for verdict in entry.verdicts] == [PASSED], entry.verdicts


@pytest.mark.brief
def test_network_devices_of_both_kinds_reach_each_other(session: Session) -> None:
    for machine, other in ((session.pair.a, "10.9.0.2"), (session.pair.b, "10.9.0.1")):
        pings.check(machine, other, "-c 3 -i 0.1 -s 1400")


@pytest.mark.brief("rxe-b-ibv_rc_pingpong -n 200 -c")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_stock_program_passes(session: Session, name: str) -> None:
    run(session, name)


def test_frames_of_the_nic_are_counted_and_none_was_lost(session: Session) -> None:
    (line,) = session.pair.server.tell("wires")
    assert line.startswith(f"NIC {session.setup.rxe}: sent ")
    assert "," not in line.partition("received ")[2], line


def test_neither_breaks_a_rule_while_packets_vanish(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor did one before. What Soft-RoCE does by design is tolerated, in its own packets only."""
    with session.pair.hardware.drop("a", kind="packet", probability=LOSS, seed=7) as rule:
        for name in LOSSY:
            run(session, name)
        assert rule.taken > 10, rule.counts()
    capsys.readouterr()
    main(["check", "wire", str(session.pair.logs), "--tolerate", "rxe,buffers", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["violations"] == []
    assert found["packets"] > 1000 and len(found["went_back"]) > 5


@pytest.fixture(scope="module")
def python_pair(lab: Lab) -> Iterator[Pair]:
    """The HCA of guest a under Python, and the kernel's RTRS over Soft-RoCE in b."""
    with lab.pair(rtrs=("python", "kernel"), rxe="b", options=RXE_CLIENT.options) as pair:
        yield pair


def _maps_a_disk(pair: Pair) -> None:
    """fio on a disk of guest b that a has mapped."""
    with mapped(pair) as session:
        found = Verification(pair.a, session.device, 5).finish()
        assert found.ok and found.read_rate > 0, found


def test_python_maps_a_disk_of_the_kernel(python_pair: Pair) -> None:
    _maps_a_disk(python_pair)


def test_krping_with_rping_as_the_server(python_pair: Pair) -> None:
    a, b = python_pair.machines
    b.run("rping -s -a 10.9.0.2 -p 9999 -S 4097 -V > /tmp/rping 2>&1 &")
    b.run(wait_until(CM_LISTENING), timeout=60)
    said = a.run(f"{KRPING} client,addr=10.9.0.2,port=9999,count=20,size=4097,validate").text
    assert "20 iterations, 20 validated" in said
    b.run(wait_until("! pgrep -x rping"), timeout=60)


def test_krping_with_rping_as_the_client(python_pair: Pair) -> None:
    a, b = python_pair.machines
    a.run(f"{KRPING} server,addr=10.9.0.1,port=9999,size=4097 > /tmp/krping 2>&1 &")
    a.run(wait_until("grep -q rdma_listen /tmp/krping"), timeout=60)
    b.run("rping -c -a 10.9.0.1 -p 9999 -S 4097 -C 20 -V", timeout=60)
    a.run(wait_until("! pgrep -f protocols.krping"), timeout=60)


@pytest.mark.long
@pytest.mark.parametrize("options", [RXE_CLIENT.options, CONNECTX5], ids=["connectx3", "connectx5"])
@pytest.mark.parametrize(
    ("sides", "rxe"),
    [(("kernel", "python"), "a"), (("kernel", "kernel"), "a"), (("kernel", "kernel"), "b")],
)
def test_the_kernel_maps_a_disk(
    lab: Lab, sides: tuple[str, str], rxe: str, options: ServerOptions
) -> None:
    """One side is an HCA, under Python or the kernel, the other Soft-RoCE."""
    with lab.pair(rtrs=sides, rxe=rxe, options=options) as pair:
        _maps_a_disk(pair)
