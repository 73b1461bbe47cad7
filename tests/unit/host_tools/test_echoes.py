"""The shell line that pings, with a ping and counters of our own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bluebridge.host_tools.machine import pings

Run = Callable[[str], tuple[int, str]]
_COUNTERS = """\
Ip: InReceives OutRequests
Ip: 7 7
Icmp: InMsgs InEchoReps OutMsgs OutEchos
Icmp: 9 {in4} 9 {out4}
"""
_COUNTERS6 = "Ip6InReceives  \t7\nIcmp6OutEchos \t{out6}\nIcmp6InEchoReplies \t{in6}\n"


def _write(folder: Path, **counts: int) -> None:
    (folder / "snmp").write_text(_COUNTERS.format(**counts))
    (folder / "snmp6").write_text(_COUNTERS6.format(**counts))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The line, with a ping that does what it is told and counters in files."""
    monkeypatch.setattr(pings, "_COUNTERS", f"{tmp_path}/snmp {tmp_path}/snmp6")
    monkeypatch.setattr(pings, "_PATIENCE", 5)
    _write(tmp_path, in4=100, out4=103, in6=5, out6=5)  # three were lost long ago

    def run(ping: str) -> tuple[int, str]:
        program = tmp_path / "ping"
        program.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit\ncd {tmp_path}\n{ping}\n')
        program.chmod(0o755)
        done = subprocess.run(
            ["sh", "-c", f"true && {pings.line('10.0.0.1', '-c 2')}"],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return done.returncode, done.stdout

    return run


def _counting(**counts: int) -> str:
    """Shell lines of a ping that leaves these counters."""
    four, six = _COUNTERS.format(**counts), _COUNTERS6.format(**counts)
    return f"cat > snmp <<'END'\n{four}END\ncat > snmp6 <<'END'\n{six}END\n"


@pytest.mark.parametrize("counts", [(102, 105, 5, 5), (100, 103, 7, 7)])
def test_all_are_answered(run: Run, counts: tuple[int, int, int, int]) -> None:
    status, said = run(_counting(**dict(zip(("in4", "out4", "in6", "out6"), counts, strict=True))))
    assert (status, said) == (0, f"{pings.ANSWERED}\n")


def test_an_answer_is_late(run: Run) -> None:
    """One more was asked than answered when ping ended."""
    early = _counting(in4=102, out4=106, in6=5, out6=5)
    late = _counting(in4=103, out4=106, in6=5, out6=5)
    status, said = run(f"{early}\n(sleep 0.2\n{late}) > /dev/null 2>&1 &")
    assert (status, said) == (0, f"{pings.ANSWERED}\n")


@pytest.mark.parametrize("counts", [(102, 107, 5, 5), (102, 105, 5, 7)])
def test_requests_are_lost(run: Run, counts: tuple[int, int, int, int]) -> None:
    status, said = run(_counting(**dict(zip(("in4", "out4", "in6", "out6"), counts, strict=True))))
    assert (status, said) == (1, "2 requests got no answer\n")


def test_ping_fails(run: Run) -> None:
    assert run("echo unreachable; exit 1") == (1, "unreachable\n")
