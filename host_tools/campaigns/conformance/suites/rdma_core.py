"""rdma-core's own tests of an adapter, through python3-pyverbs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bluebridge.host_tools.campaigns.conformance.program import FAILED, Ended, Program, Verdict
from bluebridge.host_tools.campaigns.conformance.setups import BLUEFLAME, INFINIBAND, ROCE, ROCE_V2

_SCRIPT = Path(__file__).parent.parent / "in_guest.py"
_PLACE = "/tmp/rdma_core_tests.py"
_TESTS = "/usr/share/doc/rdma-core"
GENERIC = 181
"""Tests that are not of another vendor's device; one that is lost counts as failed."""


def programs() -> list[Program]:
    """Return all of rdma-core's tests in one process, as its `run_tests.py` runs them."""
    return [
        Program(
            "rdma-core",
            "tests",
            f"python3 -W ignore {_PLACE} {_TESTS} 2> /tmp/stderr || tail -n 5 /tmp/stderr",
            judge=each_test,
            files=((_PLACE, _SCRIPT.read_bytes()),),
            limit=240,
            setups=(ROCE, INFINIBAND, BLUEFLAME, ROCE_V2),
            short=True,
        )
    ]


def each_test(ended: Ended) -> Sequence[Verdict]:
    """A verdict for each line of `in_guest`, and one more when lines are missing."""
    found = [
        Verdict(line["status"], line["reason"], line["test"].removeprefix("tests."))
        for line in map(_json, ended.output.splitlines())
        if line
    ]
    if ended.status != 0 or len(found) < GENERIC:
        why = "no end in time" if ended.status is None else f"status {ended.status}"
        lost = f"{len(found)} of {GENERIC} tests reported, {why}: {ended.last_words}"
        found.append(Verdict(FAILED, lost, "all tests"))
    return found


def _json(line: str) -> dict[str, str]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "test" in found else {}
