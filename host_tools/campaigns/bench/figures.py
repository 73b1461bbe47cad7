"""The figures of a bench run, each with its goal."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace

from bluebridge.host_tools.campaigns.bench.leftovers import Resources

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

_MEMORY_SLACK = 2 * (1 << 20)  # what an allocator keeps back


def growth(key: str, title: str, early: Resources, late: Resources) -> list[Figure]:
    """Return the growth of each resource over many guests as a figure."""
    figures = []
    for name in ("processes", "files", "descriptors"):
        grown = getattr(late, name) - getattr(early, name)
        text = f"{title}: more {_NAMES[name]}"
        figures.append(Figure(f"{key}_{name}", text, grown, "", "0", grown <= 0))
    disk, memory = late.disk - early.disk, late.memory - early.memory
    figures.append(
        Figure(f"{key}_disk", f"{title}: more disk", disk / 1024, "KiB", "0 KiB", disk <= 0)
    )
    figures.append(
        Figure(
            f"{key}_memory",
            f"{title}: more memory of server and lab",
            memory / (1 << 20),
            "MiB",
            "does not grow (<= 2 MiB)",
            memory <= _MEMORY_SLACK,
        )
    )
    return figures


_NAMES = {
    "processes": "processes",
    "files": "files and sockets",
    "descriptors": "open files",
}


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


def memory_growth(iterations: int, first: int, last: int) -> Figure:
    """Growth of the server's own memory in MiB between the warm-up and the end of a long run.

    The bound allows for what an allocator keeps back; a leak of one byte a record is far above it.
    """
    grown = (last - first) / (1 << 20)
    title = f"{iterations:,} krping iterations, growth of the server's memory"
    return Figure("server_growth", title, grown, "MiB", "does not grow (<= 2 MiB)", grown <= 2)
