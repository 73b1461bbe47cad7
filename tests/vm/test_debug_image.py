"""Guests with the debugging tools: each tool does its work, at a terminal where it wants one."""

from __future__ import annotations

import pytest

from tests.models.lab_commands import Commands

pytestmark = pytest.mark.long

TRACE = (
    "mount -t tracefs tracefs /sys/kernel/tracing; cd /tmp; "
    "trace-cmd record -e sched_switch sleep 0.2 >/dev/null; trace-cmd report"
)
BREAK = "gdb -q -batch -ex 'break write' -ex run -ex bt --args /usr/bin/python3 -c 'print(1)'"


def test_the_tools_are_there_and_come_again_with_a_restart(bluebridge: Commands) -> None:
    bluebridge.good("up", "--bare", "--image", "debug", "--quiet")
    assert "openat(" in bluebridge.good("run", "a", "strace ls / 2>&1")
    assert "sched_switch" in bluebridge.good("run", "a", TRACE)
    assert "task-clock" in bluebridge.good("run", "b", "perf stat -e task-clock true 2>&1")
    assert "Breakpoint 1, " in bluebridge.good("run", "b", f"{BREAK} </dev/null 2>&1")
    screen = bluebridge.terminal("run", "-t", "a", "--", "gdb", "-q")
    screen.expect_exact("(gdb) ")
    screen.sendline("python import os; print(os.get_terminal_size())")
    screen.expect_exact("columns=111, lines=33")
    screen.sendline("quit")
    screen.expect(r"\Z|\r\n")
    bluebridge.good("restart", "b", "--quiet")
    assert "nano" in bluebridge.good("run", "b", "nano --version")
    bluebridge.good("down")
