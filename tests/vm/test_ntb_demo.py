"""`bluebridge ntb demo` as its users call it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tests.models.lab_tool import Tool


def test_the_demonstration(tool: Callable[..., Tool], tmp_path: Path) -> None:
    bluebridge = tool("ntb", "demo", "--quiet", "--log", str(tmp_path / "log"))
    status, output = bluebridge.finish()
    assert status == 0, bluebridge.errors
    assert bluebridge.errors == ""
    parts = re.split(r"^-- .*$", output, flags=re.MULTILINE)
    link, ping, packet, transfer, perf, tools = parts[1:]
    assert link.count("[8086:347e]") == link.count("[8086:0b00]") == 2
    assert "each request was answered" in ping
    for said in ("through the peer's window into", "COPY", "bytes=3042", "DOORBELL[0].ring=0x1"):
        assert said in packet
    assert packet.splitlines()[-1 if packet.splitlines()[-1] else -2].endswith("MSI-X vector 1")
    sums = re.findall(r"16777216 bytes, md5 ([0-9a-f]{32})", transfer)
    assert len(sums) == 2 and sums[0] == sums[1]
    assert perf.count("copied 67108864 bytes") == 2
    assert tools.count("rings doorbells 0x11") == 2 == tools.count("writes scratchpads")
    assert "all of it was right" in tools
    assert (tmp_path / "log" / "bus").is_dir()
    bluebridge.assert_nothing_left()
