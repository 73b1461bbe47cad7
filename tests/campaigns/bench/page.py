"""The figures of bench runs: in docs/benchmarks.json, in docs/benchmarks.md, quoted on pages."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bluebridge.images.cache import HOME

PAGE = HOME / "docs" / "benchmarks.md"
RESULTS = PAGE.with_suffix(".json")
_SHARE = re.compile(r"(<!-- figures: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
"""The part of the page that a section's run writes, and the section's name."""


@dataclass(frozen=True)
class Figure:
    """One measured value and its goal: `least` or `most` in the same unit, or none."""

    title: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None

    def row(self) -> tuple[str, str, str, str]:
        """Return title, value, goal, and `met` or `fell short`, as text for people."""
        digits = f"{self.value:,.0f}" if abs(self.value) >= 100 else f"{self.value:.3g}"
        shown = f"{digits} {self.unit}"
        if self.least is not None:
            goal, met = f">= {self.least:g} {self.unit}", self.value >= self.least
        elif self.most is not None:
            goal, met = f"<= {self.most:g} {self.unit}", self.value <= self.most
        else:
            return self.title, shown, "", ""
        return self.title, shown, goal, "met" if met else "fell short"


def table(figures: Sequence[Figure]) -> str:
    """The figures as aligned text."""
    rows = [figure.row() for figure in figures]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


@dataclass(frozen=True)
class Section:
    """The figures of one part of `make bench`, with the machine and the date of its run."""

    machine: str
    date: str
    figures: list[Figure]

    def text(self) -> str:
        """Return machine, date and table as the page shows them."""
        rows = [" | ".join(figure.row()) for figure in self.figures]
        head = ["| figure | measured | goal | |", "|---|---|---|---|"]
        lines = [f"{self.machine}; {self.date}.", "", *head, *(f"| {row} |" for row in rows)]
        return "\n".join(lines)


Results = dict[str, Section]
"""The contents of docs/benchmarks.json, by the name of the section."""


def machine(accelerator: str) -> str:
    """Return what the page says of this machine."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    model = models[0] if models else platform.machine()
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    system = platform.freedesktop_os_release().get("PRETTY_NAME")
    python = platform.python_version()
    return f"{model}, {cores} cores, {memory:.0f} GiB, {system}, Python {python}, {accelerator}"


def read() -> Results:
    """Return what the last runs measured."""
    return {
        name: Section(of["machine"], of["date"], [Figure(**each) for each in of["figures"]])
        for name, of in json.loads(RESULTS.read_text()).items()
    }


def write(measured: Results) -> None:
    """Put a run into docs/benchmarks.json and the page; sections that it left out stay."""
    results = {**read(), **measured}
    content = {name: asdict(section) for name, section in results.items()}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")
    PAGE.write_text(with_tables(PAGE.read_text(), results))


def with_tables(page: str, results: Results) -> str:
    """Return the page with the table of each section between its marks."""

    def filled(found: re.Match[str]) -> str:
        of = results.get(found[2])
        return found[1] if of is None else f"{found[1]}{of.text()}\n"

    return _SHARE.sub(filled, page)


def section(figures: list[Figure], accelerator: str) -> Section:
    """Return figures just measured here as a section."""
    return Section(machine(accelerator), time.strftime("%Y-%m-%d"), figures)


def quotes(results: Results) -> dict[str, str]:
    """Return sentences of other pages that quote figures, by the page's path."""
    races = [each for each in results["rdma"].figures if each.title.startswith("`ib_")]
    ratios = [each.value for each in races if each.unit == "x"]
    slower = f"{min(ratios):.0f} to {max(ratios):.0f} times slower"
    return {"README.md": f"Soft-RoCE in the same guests is {slower}"}
