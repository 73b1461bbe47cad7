"""`bluebridge up --cold` as somebody at a terminal uses it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pexpect
import pytest

from tests.vm.conftest import BOOT_SECONDS, ROOT

pytestmark = pytest.mark.timeout(2 * BOOT_SECONDS)


def test_consoles_and_quit(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    tool = pexpect.spawn(
        sys.executable,
        ["-m", "host_tools.cli", "up", "--cold", "--log", str(tmp_path / "log")],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        cwd=str(ROOT),
        encoding="utf-8",
        timeout=BOOT_SECONDS,
    )
    try:
        tool.expect(r"console of a: (\S+)\r\n")
        assert isinstance(tool.match, re.Match) and Path(tool.match.group(1)).is_socket()
        tool.expect("bluebridge> ")
        for name in "ab":
            tool.sendline(name)
            tool.expect("bluebridge# ")
            tool.sendline("echo $((6 * 7)) on $(hostname)")
            tool.expect(f"\n42 on {name}\r\n")
            tool.send("\x1d")
            tool.expect("bluebridge> ")
        tool.sendline("status")
        tool.expect(r"server (\d+), a (\d+), b (\d+)")
        assert isinstance(tool.match, re.Match)
        pids = [int(pid) for pid in tool.match.groups()]
        tool.sendline("quit")
        tool.expect(pexpect.EOF)
        tool.close()
        assert tool.exitstatus == 0
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
        assert not list(runtime.iterdir())
    finally:
        tool.close(force=True)
