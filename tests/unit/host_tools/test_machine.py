"""QEMU's doors against peers of ours: the console, its transcript, QMP."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shlex
import socket
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bluebridge.host_tools import cli
from bluebridge.host_tools.commands import ps
from bluebridge.host_tools.errors import CommandFailed, LabError
from bluebridge.host_tools.keeper.record import GuestRecord, PairRecord
from bluebridge.host_tools.machine.console import FAILURES, Console, Transcript
from bluebridge.host_tools.machine.qemu import Qmp, QmpError


def _pump(source: int, target: int, stop: threading.Event) -> None:
    """Copy until either end closes or `stop` is set."""
    with contextlib.suppress(OSError):
        while not stop.is_set():
            if select.select([source], [], [], 0.02)[0]:
                if not (data := os.read(source, 4096)):
                    return
                os.write(target, data)


@pytest.fixture
def loud(tmp_path: Path) -> Iterator[Console]:
    """A console joined to an interactive /bin/sh on a pseudo-terminal, echo on."""
    master, slave = pty.openpty()
    ours, theirs = socket.socketpair()
    shell = subprocess.Popen(
        ["setsid", "--ctty", "/bin/sh", "-i"],  # with a controlling terminal, for Ctrl-C
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={"PS1": "bluebridge# ", "PATH": os.environ["PATH"]},
    )
    os.close(slave)
    ends = ((master, theirs.fileno()), (theirs.fileno(), master))
    stop = threading.Event()
    pumps = [threading.Thread(target=_pump, args=(*pair, stop), daemon=True) for pair in ends]
    for pump in pumps:
        pump.start()
    yield Console("t", ours, tmp_path / "transcript")
    shell.kill()
    shell.wait()
    stop.set()
    for pump in pumps:  # before their descriptors' numbers are given to somebody else
        pump.join()
    for end in (ours, theirs):
        end.close()
    os.close(master)


@pytest.fixture
def console(loud: Console) -> Console:
    """The same with the echo off."""
    loud.wake()
    return loud


def test_output_and_status(console: Console) -> None:
    assert console.run("echo one; echo two") == "one\ntwo"
    assert console.run("printf 'no newline'") == "no newline"
    with pytest.raises(CommandFailed) as caught:
        console.run("echo sorry; sh -c 'exit 7'")
    assert caught.value.exit_status == 7
    assert caught.value.output == "sorry"
    assert console.run("false", check=False) == ""


def test_works_while_the_terminal_echoes(loud: Console) -> None:
    loud.expect("bluebridge# ", timeout=20)
    assert loud.run("echo loud") == "loud"


def test_progress_then_finish(console: Console) -> None:
    console.begin("echo first; sleep 0.3; echo second")
    assert console.finish(20, progress="first\r?\n") == (-1, "")
    assert console.finish(20) == (0, "first\nsecond")


def test_background_jobs_are_silent(console: Console) -> None:
    console.run("(sleep 0.1 &)")
    assert console.run("sleep 0.3; echo one") == "one"
    assert console.run("echo two") == "two"


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("trap 'exit 0' INT; echo started; while :; do sleep 0.1; done", 0),
        # From a program of its own, so that it has the terminal before it says so.
        ("echo started; exec sleep 100", 130),
    ],
)
def test_interrupt(console: Console, program: str, status: int) -> None:
    """Its status is that of a program that handles Ctrl-C, or of one that ends by it."""
    console.begin(f"sh -c {shlex.quote(program)}")
    console.finish(20, progress="started\r?\n")
    console.interrupt()
    assert console.finish(20)[0] == status
    assert console.run("echo alive") == "alive"


@pytest.mark.parametrize(
    "line",
    [
        "Kernel panic - not syncing: sysrq triggered crash",
        "Oops: general protection fault, probably for non-canonical address",
        "BUG: kernel NULL pointer dereference, address: 0000000000000000",
        "kernel BUG at mm/slub.c:1",
        "watchdog: BUG: soft lockup - CPU#0 stuck for 22s",
        "INFO: task kworker/0:1:8 blocked for more than 120 seconds.",
    ],
)
def test_bad_news_ends_a_wait(console: Console, line: str) -> None:
    with pytest.raises(LabError, match=r"guest t: (the|a) "):
        console.run(f"echo '{line[:5]}''{line[5:]}'; echo '---[ end trace'; sleep 60")


def test_alarm_and_time_limit(console: Console) -> None:
    with pytest.raises(LabError, match="no sign of"):
        console.expect("never", timeout=0.5)
    console.alarms.append(lambda: LabError("the server is dead"))
    with pytest.raises(LabError, match="the server is dead"):
        console.expect("never", timeout=20)


def test_end_of_the_guest(console: Console) -> None:
    console.begin("echo bye")
    with pytest.raises(LabError, match="QEMU ended"):
        _hang_up(console)
        console.expect("never", timeout=20)


def test_the_end_of_the_guest_is_explained(console: Console) -> None:
    """By an alarm that comes a little later: sockets close before processes are seen to end."""
    end: list[float] = []

    def alarm() -> LabError | None:
        late = bool(end) and time.monotonic() - end[0] > 0.5
        return LabError("the device server ended with status -9") if late else None

    console.alarms.append(alarm)
    with pytest.raises(LabError, match="the device server ended with status -9"):
        _hang_up(console)
        end.append(time.monotonic())
        console.expect("never", timeout=20)
    with pytest.raises(LabError, match="the device server ended with status -9"):
        console.run("true")


def _hang_up(console: Console) -> None:
    console.connection.shutdown(socket.SHUT_RDWR)


def test_misuse(console: Console) -> None:
    with pytest.raises(ValueError, match="one line"):
        console.begin("a\nb")
    console.begin("true")
    with pytest.raises(RuntimeError, match="still running"):
        console.begin("true")
    assert console.finish(20) == (0, "")
    assert len({pattern for pattern, _ in FAILURES}) == len(FAILURES)


PANIC = b"[    1.0] Kernel panic - not syncing: Fatal exception\r\n"


def test_a_line_that_comes_in_two_parts(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    transcript = Transcript("a", path)
    assert transcript.trouble() is None, "QEMU has not made the file yet"
    path.write_bytes(b"booting\r\n" + PANIC[:20])
    assert transcript.trouble() is None
    path.write_bytes(b"booting\r\n" + PANIC)
    assert "guest a: the guest's kernel panicked" in str(transcript.trouble())


def test_a_guest_that_is_started_anew_is_judged_anew(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(PANIC)
    transcript = Transcript("a", path)
    assert transcript.trouble() is not None
    transcript.skip()
    assert transcript.trouble() is None


ESCAPES = b"\x1b]0;owned\x07\x1b[2J\x9b\xe2\x80\xae"
"""Bytes that change a terminal's title, its screen, the direction of text."""


def test_a_console_is_told_in_printable_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In errors, which `ps` repeats, and in transcripts that are printed."""
    path = tmp_path / "console.log"
    path.write_bytes(ESCAPES + b"\r\nOops: " + ESCAPES + b" x\r\n")
    found = Transcript("a", path).trouble()
    assert found is not None
    assert str(found).isprintable() and r"Oops: \x1b]0;owned\x07\x1b[2J" in str(found)
    pair = PairRecord(1, [GuestRecord("a", remark=found.what)], warnings=[found.what])
    ps.show(pair)
    found.aloud = True
    assert cli.say(found) == 1
    out, err = capsys.readouterr()
    assert all(line.isprintable() for line in (out + err).splitlines())
    assert r"\x1b]0;owned\x07" in out and r"\x1b]0;owned\x07" in err


def test_a_console_is_read_in_portions_however_much_it_says(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"x" * (3 << 20) + b"\n" + PANIC)
    transcript = Transcript("a", path)
    tracemalloc.start()
    looks = [transcript.trouble() for _ in range(5)]
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    assert looks[0] is None
    assert "guest a: the guest's kernel panicked" in str(looks[-1])


GREETING: dict[str, Any] = {"QMP": {"version": {}, "capabilities": []}}


class Peer:
    """Plays QEMU: greets, then answers each request with the next script entry."""

    def __init__(self, *answers: Sequence[object]) -> None:
        self.client, self._server = socket.socketpair()
        self.requests: list[dict[str, Any]] = []
        self._answers = answers
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def _play(self) -> None:
        stream = self._server.makefile("rwb", buffering=0)
        stream.write(json.dumps(GREETING).encode() + b"\r\n")
        for messages in ([{"return": {}}], *self._answers):
            self.requests.append(json.loads(stream.readline()))
            for message in messages:
                text = message if isinstance(message, bytes) else json.dumps(message).encode()
                stream.write(text + b"\r\n")
        stream.close()
        self._server.close()


def test_command_events_and_arguments() -> None:
    peer = Peer([{"event": "RESUME"}, {"return": {"status": "running"}}])
    qmp = Qmp(peer.client)
    assert qmp.command("device_add", bus_name="x") == {"status": "running"}
    assert qmp.events == [{"event": "RESUME"}]
    assert [r["execute"] for r in peer.requests] == ["qmp_capabilities", "device_add"]
    assert peer.requests[1]["arguments"] == {"bus-name": "x"}


def test_refusal_garbage_and_hang_up() -> None:
    peer = Peer(
        [{"error": {"class": "GenericError", "desc": "no such thing"}}],
        [b"not json"],
        [b"[" * 5000],
    )
    qmp = Qmp(peer.client)
    with pytest.raises(QmpError, match="no such thing"):
        qmp.command("nonsense")
    for _ in range(2):
        with pytest.raises(QmpError, match="not JSON"):
            qmp.command("stop")
    with pytest.raises(QmpError, match="closed its control socket"):
        qmp.command("stop")


def test_silence_ends_at_the_time_limit() -> None:
    client, server = socket.socketpair()
    with server, pytest.raises(QmpError, match="does not answer"):
        Qmp(client, timeout=0.2)
