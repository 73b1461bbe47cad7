"""Tests of what is read in the tables of perftest's programs."""

from __future__ import annotations

import pytest

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.programs import perftest
from bluebridge.host_tools.programs.perftest import BEST, TYPICAL, WORST

PAIR = Pair.__new__(Pair)
HEAD = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec] ...\n"
INFINITE = f"{HEAD} 28      20  inf  inf  inf  inf  0.0  inf  inf\n"
LATENCY = (
    f"{HEAD} 28      500          127.21         70496.27      1083.60  \t 3165.18  1.0 2.0\n---\n"
)


def said(monkeypatch: pytest.MonkeyPatch, *outputs: str) -> None:
    """Have programs print these, one after the other."""
    left = list(outputs)
    monkeypatch.setattr(perftest, "run", lambda *_: left.pop(0))


def test_figures_are_read_and_a_run_without_a_clock_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said(monkeypatch, INFINITE, LATENCY)
    row = perftest.figures(PAIR, "ib_write_lat", "10.9.0.1", 1)
    assert (row[TYPICAL], row[BEST], row[WORST]) == (1083.60, 127.21, 70496.27)


def test_no_figures_and_no_clock_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, "nothing to see\n")
    with pytest.raises(LabError, match="printed no figures"):
        perftest.figures(PAIR, "ib_write_lat", "10.9.0.1", 1)
    said(monkeypatch, *[INFINITE] * 20)
    with pytest.raises(LabError, match="could not sample the guest's clock"):
        perftest.figures(PAIR, "ib_write_lat", "10.9.0.1", 1)
