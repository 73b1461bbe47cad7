"""The figures of a bench run, each with its goal."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace

GIB = 1 << 30


@dataclass(frozen=True)
class Figure:
    """One measured value and its goal."""

    key: str
    title: str
    value: float
    unit: str
    goal: str = ""
    met: bool | None = None
    """Whether the goal was reached; None for a figure without a goal."""

    def shown(self) -> str:
        """The value as text for people."""
        digits = f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:.3g}"
        return f"{digits} {self.unit}"

    def verdict(self) -> str:
        """`met` or `fell short`; empty for a figure without a goal."""
        return {True: "met", False: "fell short", None: ""}[self.met]


def _figure(
    key: str, title: str, unit: str, goal: float, compare: Callable[[float, float], bool]
) -> Callable[[float], Figure]:
    sign = "<=" if compare(0, 1) else ">="

    def make(value: float) -> Figure:
        return Figure(key, title, value, unit, f"{sign} {goal:g} {unit}", compare(value, goal))

    return make


krping_median = _figure(
    "krping_64_p50", "krping, 64 bytes, median per iteration, no verbose", "ms", 1.5, operator.le
)
write_bandwidth = _figure(
    "write_bandwidth", "RDMA WRITE bandwidth, 1 MiB messages", "GiB/s", 1, operator.ge
)
write_latency = _figure(
    "write_latency_p50", "8-byte RDMA WRITE, half of a ping-pong, p50", "us", 60, operator.le
)
doorbell_cost = _figure(
    "doorbell_cpu", "device CPU per doorbell with one WQE, bus log on", "us", 18, operator.le
)
doorbell_cost_in_ping_pong = _figure(
    "doorbell_cpu_ping_pong",
    "the same in the ping-pong of two guests, falling asleep and waking up included",
    "us",
    60,
    operator.le,
)


up_warm = _figure(
    "up_warm",
    "`bluebridge up` from a warm cache until a command was answered in each guest, median",
    "s",
    3,
    operator.le,
)


def plain(key: str, title: str, value: float, unit: str) -> Figure:
    """Return a figure without a goal."""
    return Figure(key, title, value, unit)


def at_least(figure: Figure, goal: float) -> Figure:
    """Return the same figure with a goal: not less than `goal`."""
    met = figure.value >= goal
    return replace(figure, goal=f">= {goal:g} {figure.unit}", met=met)


def at_most(figure: Figure, goal: float) -> Figure:
    """Return the same figure with a goal: not more than `goal`."""
    met = figure.value <= goal
    return replace(figure, goal=f"<= {goal:g} {figure.unit}", met=met)
