"""The ping-pong program over NTRDMA, as a user starts it in two processes."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.unit.ntrdma.tcp.programs import program

OVER = ("latency", "--provider", "ntrdma", "--backend")


def test_writes_to_and_fro(free_port: int) -> None:
    """Payloads that fit into the entry, and one that does not."""
    place = f"127.0.0.1:{free_port}"
    with program(*OVER, f"s:{place}") as first, program(*OVER, f"c:{place}") as second:
        ends = heard(first), heard(second)
        tell(first, ends[1])
        tell(second, ends[0])
        for size in (8, 220, 4096):
            asked = {"size": size, "count": 20}
            tell(second, {**asked, "first": False})
            assert heard(second) == {"ready": size}
            tell(first, {**asked, "first": True})
            assert all(heard(each)["best"] > 0 for each in (first, second))


def tell(process: subprocess.Popen[str], values: dict[str, Any]) -> None:
    """A line of JSON."""
    assert process.stdin is not None
    process.stdin.write(json.dumps(values) + "\n")
    process.stdin.flush()


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    """A line of JSON."""
    assert process.stdout is not None
    values: dict[str, Any] = json.loads(process.stdout.readline())
    return values
