"""The life of pairs: `up`, `ps`, `restart`, `down`, and all the ways to end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.models.lab_commands import PATIENCE, Commands, alive


@pytest.fixture(scope="module")
def village(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Commands of tests each of which ends its pair; after the last one a pair comes up again."""
    commands = Commands(tmp_path_factory.mktemp("village"))
    yield commands
    commands.good("up", "--bare", "--quiet")
    assert commands.ps()["ended"] == []
    commands.close()


def _pair(bluebridge: Commands, number: int = 1) -> dict[str, Any]:
    pair: dict[str, Any] = next(p for p in bluebridge.ps()["pairs"] if p["number"] == number)
    return pair


@pytest.mark.brief
def test_from_up_to_down(bluebridge: Commands) -> None:
    assert bluebridge.good("ps").startswith("nothing runs")
    assert bluebridge.good("down") == "nothing runs\n"
    status, line = bluebridge.bad("run", "a", "true")
    assert (status, "`bluebridge up` starts a pair" in line) == (125, True)

    said = bluebridge.good("up")
    assert "guests a and b, HCA (vfio-pci) in each" in said
    pair = _pair(bluebridge)
    assert f"bus log and transcripts: {pair['logs']}" in said
    assert pair["state"] == "running"
    for name in "ab":
        assert "Mellanox" in bluebridge.good("run", name, "lspci -d 15b3:")
    processes = bluebridge.processes()
    assert {pair["server"], pair["guests"][0]["pid"], pair["guests"][1]["pid"]} <= set(processes)
    assert f"server {pair['server']}" in bluebridge.good("ps")

    assert bluebridge.good("down") == "pair 1 is down\n"
    assert not bluebridge.processes() and not list(bluebridge.runtime.iterdir())
    assert not alive(pair["keeper"])
    assert Path(pair["guests"][0]["transcript"]).exists(), "logs stay"
    assert bluebridge.good("ps").startswith("nothing runs")


def test_more_pairs_get_the_next_names(bluebridge: Commands, tmp_path: Path) -> None:
    bluebridge.good("up", "--bare", "--pairs", "2", "--log", str(tmp_path / "log"))
    assert bluebridge.good("run", "a2", "hostname") == "a2\n"
    assert (tmp_path / "log/pair2/console-b2.log").exists()
    status, line = bluebridge.bad("run", "c", "true")
    assert (status, "these run: a, b, a2, b2" in line) == (2, True)

    assert bluebridge.good("down", "b") == "pair 1 is down\n"
    assert [pair["number"] for pair in bluebridge.ps()["pairs"]] == [2]
    assert "guests a and b" in bluebridge.good("up", "--bare"), "the free number is taken again"
    assert bluebridge.bad("down", "pair7")[1].startswith("bluebridge: there is no")
    assert bluebridge.good("down", "2", "a") == "pair 2 is down\npair 1 is down\n"


def test_pairs_do_not_share_logs_or_addresses(bluebridge: Commands, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    words = ["up", "--quiet", "--driver", "none", "--log", str(logs)]
    bluebridge.good(*words)
    assert f"another run writes to the log folder {logs}; choose" in bluebridge.bad(*words)[1]
    bluebridge.good(*words[:-2])
    ask = "modprobe mlx4_en; until cat /sys/class/net/e*/address 2>/dev/null; do sleep 0.1; done"
    names = ("a", "b", "a2", "b2")
    asked = [bluebridge.start("run", "--timeout", "120", name, ask) for name in names]
    addresses = {each.communicate(timeout=PATIENCE)[0] for each in asked}
    assert [each.returncode for each in asked] == [0] * 4
    assert len(addresses) == 4, addresses
    identity = "cat /etc/machine-id /proc/sys/kernel/random/boot_id"
    told = [bluebridge.good("run", name, identity).split() for name in names]
    assert len({word for words in told for word in words}) == 8, told


def test_two_ups_at_the_same_time(bluebridge: Commands) -> None:
    both = [bluebridge.start("up", "--bare") for _ in range(2)]
    said = b"".join(each.communicate(timeout=PATIENCE)[0] for each in both)
    assert [each.returncode for each in both] == [0, 0]
    assert b"guests a and b," in said and b"guests a2 and b2," in said
    assert {bluebridge.good("run", name, "hostname") for name in ("a", "b2")} == {"a\n", "b2\n"}


def test_a_guest_that_ends_by_itself_can_be_restarted(bluebridge: Commands) -> None:
    bluebridge.good("up")
    server = _pair(bluebridge)["server"]
    crashed = bluebridge.run("run", "a", "echo c > /proc/sysrq-trigger")
    *stack, line = crashed.stderr.decode().splitlines()
    transcript = bluebridge.guest("a")["transcript"]
    assert crashed.returncode == 125
    assert "sysrq triggered crash" in stack[0]
    assert "guest a: the guest's kernel panicked" in line and transcript in line
    assert "sysrq triggered crash" in Path(transcript).read_text(errors="replace")
    assert bluebridge.bad("run", "a", "true")[1] == line
    assert "a    ended: the guest's kernel panicked" in bluebridge.good("ps")
    assert "Mellanox" in bluebridge.good("run", "b", "lspci -d 15b3:"), "its peer goes on"

    assert bluebridge.good("restart", "a") == "guest a is up again\n"
    assert "Mellanox" in bluebridge.good("run", "a", "lspci -d 15b3:")
    assert bluebridge.guest("a")["why"] == ""
    bluebridge.run("run", "b", "poweroff -f")
    bluebridge.wait(lambda: bluebridge.guest("b")["state"] == "ended")
    assert "switched off" in bluebridge.bad("run", "b", "true")[1]
    bluebridge.good("restart", "b")
    assert "Mellanox" in bluebridge.good("run", "b", "lspci -d 15b3:")
    assert _pair(bluebridge)["server"] == server


def test_a_restart_while_somebody_uses_the_guest(bluebridge: Commands) -> None:
    bluebridge.good("up", "--bare")
    before = bluebridge.guest("a")["pid"]
    waiting = bluebridge.start("run", "a", "echo here; sleep 1000")
    assert waiting.stdout is not None and waiting.stdout.readline() == b"here\n"
    bluebridge.good("restart", "a")
    _, errors = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 125
    assert b"guest a: it is being restarted" in errors or b"guest a: " in errors
    assert errors.count(b"\n") == 1
    assert bluebridge.guest("a")["pid"] != before


@pytest.mark.brief("server-15")
@pytest.mark.parametrize(
    ("victim", "number"),
    [
        pytest.param("keeper", signal.SIGKILL, marks=pytest.mark.long),
        pytest.param("keeper", signal.SIGTERM, marks=pytest.mark.long),
        ("server", signal.SIGTERM),
        ("a", signal.SIGTERM),
        pytest.param("b", signal.SIGKILL, marks=pytest.mark.long),
    ],
)
def test_a_process_that_is_killed_ends_the_pair(
    village: Commands, victim: str, number: signal.Signals
) -> None:
    """The next test's `up` finds nothing of it."""
    bluebridge = village
    bluebridge.good("up", "--quiet")
    assert bluebridge.ps()["ended"] == []
    pair = _pair(bluebridge)
    pids = {"keeper": pair["keeper"], "server": pair["server"]}
    pids |= {guest["name"]: guest["pid"] for guest in pair["guests"]}
    waiting = bluebridge.start("run", "b", "echo here; sleep 1000")
    assert waiting.stdout is not None and waiting.stdout.readline() == b"here\n"
    os.kill(pids[victim], number)
    _, errors = waiting.communicate(timeout=PATIENCE)
    bluebridge.wait_until_nothing_is_left()
    cause = {"keeper": "its keeper", "server": "the device server"}.get(victim, f"guest {victim}:")
    assert waiting.returncode == 125
    for line in (errors.decode(), bluebridge.bad("run", "a", "true")[1], bluebridge.good("ps")):
        assert cause in line and pair["logs"] in line
    assert not alive(pair["keeper"])
    assert bluebridge.ps()["ended"][0]["number"] == 1


STAGES = ["looking for", "restoring guests", "are up"]


@pytest.mark.brief("restoring guests-2")
@pytest.mark.parametrize(
    ("stage", "number"),
    [
        pytest.param(STAGES[0], signal.SIGINT, marks=pytest.mark.long),
        (STAGES[1], signal.SIGINT),
        pytest.param(STAGES[2], signal.SIGINT, marks=pytest.mark.long),
        (STAGES[1], signal.SIGTERM),
        pytest.param(STAGES[1], signal.SIGKILL, marks=pytest.mark.long),
    ],
)
def test_up_is_stopped(bluebridge: Commands, stage: str, number: signal.Signals) -> None:
    up = bluebridge.start("up", "--pairs", "2")
    _read_until(up, f"pair 2: .*{stage}" if stage != STAGES[0] else stage)
    up.send_signal(number)
    output, _ = up.communicate(timeout=PATIENCE)
    if b"is up" not in output:  # it may have been ready in that moment
        bluebridge.wait_until_nothing_is_left()
        assert up.returncode == {2: 130, 15: 143, 9: -9}[number]
        assert bluebridge.ps() == {"pairs": [], "ended": []}


def _read_until(process: subprocess.Popen[bytes], pattern: str) -> None:
    assert process.stderr is not None
    said = b""
    for line in process.stderr:
        said += line
        if re.search(pattern, line.decode()):
            return
    raise AssertionError(f"{pattern} was never said: {said.decode()}")


def test_down_while_it_starts(bluebridge: Commands) -> None:
    up = bluebridge.start("up", "--cold")
    _read_until(up, "booting")
    assert bluebridge.good("down") == "pair 1 is down\n"
    _, errors = up.communicate(timeout=PATIENCE)
    assert up.returncode == 1
    assert errors.decode().splitlines()[-1] == "bluebridge: stopped by `bluebridge down`"


def test_what_cannot_start_leaves_nothing(bluebridge: Commands, tmp_path: Path) -> None:
    assert "--pairs 0" in bluebridge.bad("up", "--pairs", "0")[1]
    assert "a guest cannot have 16 MiB" in bluebridge.bad("up", "--memory", "16")[1]
    assert "/proc/nowhere" in bluebridge.bad("up", "--quiet", "--log", "/proc/nowhere")[1]
    blocked = tmp_path / "hca-a.sock"
    blocked.mkdir()
    line = bluebridge.bad("up", "--quiet", "--sockets", str(tmp_path))[1]
    assert str(blocked) in line
    line = bluebridge.bad("up", "--quiet", "--sockets", str(tmp_path / "none"))[1]
    assert f"there is no folder {tmp_path / 'none'} for sockets" in line
    bluebridge.wait_until_nothing_is_left()


def test_what_a_killed_keeper_left_is_cleared(bluebridge: Commands) -> None:
    """Even when nobody was there to clean up behind it."""
    stale = bluebridge.runtime / f"bluebridge-{os.getuid()}-1"
    stale.mkdir()
    (stale / "lock").touch()
    (stale / "control.sock").touch()
    assert "guests a and b" in bluebridge.good("up", "--bare")
