"""`bluebridge stats`: the counters of several pairs as text of OpenMetrics."""

from __future__ import annotations

import re

import pytest

from bluebridge.host_tools.cli import main
from bluebridge.host_tools.commands.stats import Family, merged, openmetrics


def _families(delivered: int, seconds: float) -> list[Family]:
    return [
        {
            "name": "messages", "type": "counter", "unit": "", "help": "What came.",
            "samples": [{"labels": {"outcome": "delivered"}, "value": delivered}],
        },
        {
            "name": "call_seconds", "type": "gauge", "unit": "seconds", "help": "How long.",
            "samples": [{"labels": {}, "value": seconds}],
        },
    ]  # fmt: skip


def test_two_pairs_are_one_exposition() -> None:
    """Each quantity stands once, as OpenMetrics requires, and its samples name their pair."""
    both = merged([("1", _families(5, 0.25)), ("2", _families(7, 0.5))])
    assert list(openmetrics(both)) == [
        "# TYPE bluebridge_messages counter",
        "# HELP bluebridge_messages What came.",
        'bluebridge_messages_total{pair="1",outcome="delivered"} 5',
        'bluebridge_messages_total{pair="2",outcome="delivered"} 7',
        "# TYPE bluebridge_call_seconds gauge",
        "# UNIT bluebridge_call_seconds seconds",
        "# HELP bluebridge_call_seconds How long.",
        'bluebridge_call_seconds{pair="1"} 0.25',
        'bluebridge_call_seconds{pair="2"} 0.5',
        "# EOF",
    ]


def test_nothing_runs_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """A script gets status 2 and no half of a page."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert main(["stats", "--openmetrics"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert re.fullmatch(r"bluebridge: nothing runs; start a pair with `bluebridge up`\n", told.err)
