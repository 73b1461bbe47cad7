"""`run`, `cp` and `console`: what a pair that runs is good for."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.models.lab_commands import PATIENCE, Commands

ALL_BYTES = bytes(range(256)) * 2000


@pytest.fixture(scope="module")
def bluebridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Commands, and a pair without devices."""
    commands = Commands(tmp_path_factory.mktemp("lab"))
    commands.good("up", "--bare")
    yield commands
    commands.close()


# run


@pytest.mark.brief
def test_streams_are_apart_and_binary(bluebridge: Commands) -> None:
    script = "cat; printf 'one\\0two' >&2; exit 7"
    completed = bluebridge.run("run", "a", script, given=ALL_BYTES)
    assert completed.stdout == ALL_BYTES
    assert completed.stderr == b"one\0two"
    assert completed.returncode == 7


def test_words_are_passed_as_they_are(bluebridge: Commands) -> None:
    assert bluebridge.good("run", "a", "--", "printf", "%s.", "$HOME", "a b", "--x") == (
        "$HOME.a b.--x."
    )
    assert bluebridge.good("run", "a", "echo $HOME | tr a-z A-Z") == "/ROOT\n"
    assert bluebridge.good("run", "--timeout", "60", "b", "--", "hostname") == "b\n"
    assert bluebridge.good("run", "b", "--timeout", "60", "hostname") == "b\n"


def test_output_comes_as_it_is_printed(bluebridge: Commands) -> None:
    process = bluebridge.start("run", "a", "--", "cat", stdin=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    for line in (b"first\n", b"second\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline() == line
    process.stdin.close()
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--", "frob", "x"), 127, "bluebridge: guest a: no command frob; console: /"),
        (("frob",), 127, "frob: not found"),
        (("--", "/etc/hosts", "x"), 126, "bluebridge: guest a: /etc/hosts is not executable"),
        (("--timeout", "0.5", "--", "sleep", "1000"), 124, "killed after 0.5 s; console: /"),
        ((), 2, "no command; write `bluebridge run GUEST -- COMMAND`"),
    ],
)
def test_what_does_not_run(
    bluebridge: Commands, words: tuple[str, ...], status: int, said: str
) -> None:
    got, line = bluebridge.bad("run", "a", *words)
    assert got == status
    assert said in line
    assert bluebridge.good("run", "a", "echo fine") == "fine\n"


def test_a_command_that_dies_of_a_signal(bluebridge: Commands) -> None:
    assert bluebridge.run("run", "a", "kill -SEGV $$").returncode == 128 + signal.SIGSEGV


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("echo $$; exec sleep 1000", 128 + signal.SIGINT),
        ("trap 'exit 5' INT; echo $$; while :; do sleep 0.1; done", 5),
        ("trap '' INT; echo $$; while :; do sleep 0.1; done", 128 + signal.SIGKILL),
    ],
)
def test_ctrl_c_ends_the_command_in_the_guest(
    bluebridge: Commands, script: str, status: int
) -> None:
    process = bluebridge.start("run", "a", script)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == status
    assert bluebridge.run("run", "a", f"test -d /proc/{pid}").returncode == 1


def test_the_command_ends_with_its_caller(bluebridge: Commands) -> None:
    process = bluebridge.start("run", "a", "echo $$; exec sleep 1000")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=PATIENCE)
    bluebridge.wait(lambda: bluebridge.run("run", "a", f"test -d /proc/{pid}").returncode == 1)


def test_several_at_a_time(bluebridge: Commands) -> None:
    four = [bluebridge.start("run", "a", f"sleep 0.5; echo {number}") for number in range(4)]
    assert [each.communicate(timeout=PATIENCE)[0] for each in four] == [
        b"0\n",
        b"1\n",
        b"2\n",
        b"3\n",
    ]


# cp


@pytest.mark.brief
def test_there_and_back(bluebridge: Commands, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(ALL_BYTES)
    (tmp_path / "tool").write_text("#!/bin/sh\necho tool\n")
    (tmp_path / "tool").chmod(0o755)
    bluebridge.good("cp", str(tmp_path / "blob"), str(tmp_path / "tool"), "a:/tmp/")
    assert bluebridge.good("run", "a", "/tmp/tool") == "tool\n"
    bluebridge.good("cp", "a:/tmp/blob", "b:/tmp/other")
    bluebridge.good("cp", "b:/tmp/other", str(tmp_path))
    assert (tmp_path / "other").read_bytes() == ALL_BYTES
    bluebridge.good("cp", str(tmp_path / "tool"), "a:")
    assert bluebridge.good("run", "a", "ls /root/tool") == "/root/tool\n"


def test_folders(bluebridge: Commands, tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "deep" / "empty").mkdir(parents=True)
    (top / "deep" / "with space\n").write_bytes(ALL_BYTES)
    (top / "link").symlink_to("deep")
    assert "is a folder; copy it with cp -r" in bluebridge.bad("cp", str(top), "a:/tmp/")[1]
    completed = bluebridge.run("cp", "-r", str(top), "a:/tmp/")
    assert completed.returncode == 0
    assert b"link is no file and was left out" in completed.stderr
    bluebridge.good("cp", "-r", "a:/tmp/top", "b:/tmp/moved")
    bluebridge.good("cp", "-r", "b:/tmp/moved", str(tmp_path))
    copied = tmp_path / "moved"
    assert (copied / "deep" / "with space\n").read_bytes() == ALL_BYTES
    assert (copied / "deep" / "empty").is_dir()
    assert not (copied / "link").exists()


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (("nowhere", "a:/tmp/"), "nowhere does not exist"),
        (("a:/nowhere", "."), "/nowhere: No such file or directory"),
        (("pyproject.toml", "a:/nowhere/x"), "/nowhere/x: No such file or directory"),
        (("pyproject.toml", "a:/nowhere/"), "a:/nowhere/ is no folder"),
        (("a:/etc/hosts", "b:/etc/hosts", "nowhere"), "nowhere is no folder"),
        (("pyproject.toml", "c:/tmp/"), "there is no guest c; these run: a, b"),
        (("pyproject.toml", "README.md"), "no guest is named"),
        (("a:/etc/hosts",), "a source and a target"),
        (("a:/dev/null", "/tmp/"), "/dev/null: is no regular file"),
    ],
)
def test_what_cannot_be_copied(bluebridge: Commands, places: tuple[str, ...], said: str) -> None:
    assert said in bluebridge.bad("cp", *places)[1]


# console


def _at_prompt(bluebridge: Commands, guest: str) -> pexpect.spawn[str]:
    terminal = bluebridge.terminal("console", guest)
    terminal.expect_exact("Ctrl-] leaves it")
    terminal.expect_exact("bluebridge# ")
    return terminal


@pytest.mark.brief
def test_a_console_and_its_transcript(bluebridge: Commands) -> None:
    terminal = _at_prompt(bluebridge, "b")
    terminal.sendline("echo $((6 * 7)) on $(hostname); stty size")
    terminal.expect_exact("stty size\r\n42 on b\r\n33 111\r\n")
    status, line = bluebridge.bad("console", "b")
    assert (status, "a console needs a terminal" in line) == (2, True)
    second = bluebridge.terminal("console", "b")
    second.expect_exact("guest b: somebody else is at its console")
    second.expect(pexpect.EOF)
    assert second.wait() == 1
    assert bluebridge.good("run", "b", "hostname") == "b\n"

    terminal.setwinsize(22, 99)
    terminal.sendline("until stty size | grep '22 99'; do :; done")
    terminal.expect_exact("\r\n22 99\r\n")
    terminal.sendline("echo be''gun; sleep 1000")
    terminal.expect_exact("\r\nbegun\r\n")
    terminal.send("\x03")
    terminal.expect_exact("bluebridge# ")
    terminal.sendline("cd /tmp")
    terminal.send("\x1d")
    terminal.expect(pexpect.EOF)
    assert terminal.wait() == 0

    again = _at_prompt(bluebridge, "b")
    again.sendline("pwd")
    again.expect_exact("\r\n/tmp\r\n")
    again.send("\x1d")
    again.expect(pexpect.EOF)
    assert "42 on b" in Path(bluebridge.guest("b")["transcript"]).read_text()


def test_a_guest_ends_under_its_console(bluebridge: Commands) -> None:
    terminal = _at_prompt(bluebridge, "b")
    terminal.sendline("echo c > /proc/sysrq-trigger")
    terminal.expect_exact("bluebridge: guest b: the guest's kernel panicked")
    terminal.expect(pexpect.EOF)
    assert terminal.wait() == 1
    assert bluebridge.guest("a")["state"] == "running"
    late = bluebridge.terminal("console", "b")
    late.expect_exact("`bluebridge restart b` brings it back")
    late.expect(pexpect.EOF)
    bluebridge.good("restart", "b")
    assert bluebridge.good("run", "b", "hostname") == "b\n"


def test_what_a_console_says_is_no_end(bluebridge: Commands) -> None:
    """Somebody who reads a log on the console has a guest in good health."""
    bluebridge.good("run", "a", "echo 'Kernel panic - not syncing: in a log' > /dev/ttyS0")
    bluebridge.wait(lambda: "in a log" in bluebridge.guest("a")["remark"])
    assert bluebridge.good("run", "a", "hostname") == "a\n"
    os.kill(bluebridge.guest("a")["pid"], 0)
