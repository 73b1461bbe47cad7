"""Unmodified drivers and programs between two HCAs that are joined by RoCE v2 packets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bluebridge.device.rdma.connected.congestion import LAB
from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.cli import main
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.programs.perftest import VERBS_PORT, listening
from bluebridge.host_tools.programs.running import wait_until
from bluebridge.host_tools.show.show_command import KINDS, ask
from tests.campaigns.conformance.program import PASSED
from tests.campaigns.conformance.runner import Run
from tests.campaigns.conformance.session import PACKETS, Session
from tests.campaigns.conformance.suites import everything

LOSSY = "ucmatose -c 4 -C 100 -S 4096"
LOSS = 0.02
READ = "ib_read_bw -F -s 16384 -n 5"
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


@pytest.mark.brief("rping -C 100 -V over IPv6")
@pytest.mark.parametrize("name", ["rping -C 100 -V over IPv6", "ib_send_bw -c XRC -s 4096 -n 200"])
def test_a_stock_program_passes(session: Session, name: str) -> None:
    assert passes(session, name)


def test_a_stock_program_gets_what_it_sent_while_packets_vanish(session: Session) -> None:
    """The guests' own driver counts what was sent again."""
    with session.pair.hardware.drop("a", probability=LOSS, seed=7) as rule:
        assert passes(session, LOSSY)
        assert rule.taken > 10, rule.counts()
    again = [machine.run(f"cat {COUNTERS}/sq_num_to").text for machine in session.pair.machines]
    assert sum(map(int, again)) > 0


def test_a_queue_loses_no_completion_to_a_thread_that_resizes_it(session: Session) -> None:
    """Neither does one that comes while `ibv_resize_cq` runs: the peer goes on sending."""
    pair, program = session.pair, Path(__file__).with_name("resized_queue.py")
    for machine in pair.machines:
        machine.agent.put(program, "/tmp/")
    receiving = pair.b.agent.start(f"python3 /tmp/{program.name} 2>&1", 60)
    sending = pair.a.agent.start(f"python3 /tmp/{program.name} 10.9.0.2", 60)
    received = receiving.wait()
    assert received.status == 0, received.text
    assert sending.wait().status == 0
    assert int(received.text.split()[-1]) > 20, "too few resizes to tell"


def check(pair: Pair, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Hold all packets of the run against the rules."""
    capsys.readouterr()
    main(["check", "wire", str(pair.logs), "--json"])
    said = capsys.readouterr()
    assert said.err == ""
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.mark.brief
def test_a_lost_answer_of_a_read_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither guest breaks a rule, and the READ that goes on names the PSN that was lost."""
    options = ServerOptions(pro=True, wire="packets", capture=4096)
    with Pair(LabConfig(vfio=False, kernel=True, options=options, log=tmp_path)) as pair:
        with pair.hardware.drop("b", opcode="READ_RESPONSE_MIDDLE", skip=5, count=1) as rule:
            serving = pair.b.agent.start(READ, 120)
            pair.b.run(wait_until(listening(VERBS_PORT)), timeout=60)
            pair.a.run(f"{READ} 10.9.0.2", timeout=60)
            serving.wait()
            assert rule.taken == 1
        found = check(pair, capsys)
        assert (found["violations"], found["cut"]) == ([], 0)
        (again,) = found["went_back"]
        assert again["cause"] == "answer that was missing"
        main(["log", str(pair.logs), "--kind", "fault"])
        dropped = [line for line in capsys.readouterr().out.splitlines() if "drops" in line]
        place = f"READ_RESPONSE_MIDDLE > qpn={again['qpn']:#x} psn={again['psn']:#x} "
        assert [place in line for line in dropped] == [True]


WRITE = "ib_write_bw -F -D 15"
MARKS = 40


def ecn(pair: Pair, guest: str) -> dict[str, Any]:
    """Return what `bluebridge show GUEST ecn` says of perftest's queue pair."""
    (item,) = ask(pair.server.tell, guest, KINDS["ecn"], None).items
    return item


def test_marks_cost_a_sender_its_pace_until_they_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both adapters count the same reports; the rate falls, and grows again."""
    options = ServerOptions(pro=True, wire="packets")
    with Pair(LabConfig(vfio=False, kernel=True, options=options, log=tmp_path)) as pair:
        serving = pair.b.agent.start(WRITE, 120)
        pair.b.run(wait_until(listening(VERBS_PORT)), timeout=60)
        sending = pair.a.agent.start(f"{WRITE} 10.9.0.2", 120)
        with pair.hardware.mark("a", opcode="WRITE_MIDDLE", probability=0.01, count=MARKS) as rule:
            until = time.monotonic() + 40
            while rule.taken < MARKS and time.monotonic() < until:
                time.sleep(0.1)
            time.sleep(0.2)
            told, seen = ecn(pair, "a"), ecn(pair, "b")
        assert seen["ce-seen"] == MARKS
        assert 1 < seen["cnps-sent"] == told["cnps-received"] <= MARKS
        assert told["rate"] < LAB.line_rate
        sending.wait()
        serving.wait()
        assert check(pair, capsys)["violations"] == []
        main(["log", str(pair.logs), "--kind", "note"])
        notes = [line for line in capsys.readouterr().out.splitlines() if ": rate " in line]
        rates = [float(note.partition(": rate ")[2].split()[0]) for note in notes]
        assert min(rates) < LAB.line_rate * 0.75
        assert rates[-1] > 1.2 * min(rates)
