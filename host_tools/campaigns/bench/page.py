"""The figures of a bench run, each with its goal: as a table, as JSON, in docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bluebridge.images.cache import HOME

PAGE = HOME / "docs" / "benchmarks.md"
RESULTS = HOME / "build" / "bench"


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


def machine(accelerator: str) -> dict[str, str]:
    """Return what the page says of this machine, by label."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    system = platform.freedesktop_os_release().get("PRETTY_NAME")
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory:.0f} GiB",
        "system": f"{system}, Linux {platform.release()}, Python {platform.python_version()}",
        "accelerator": accelerator,
        "date": time.strftime("%Y-%m-%d"),
    }


def write_json(about: dict[str, str], figures: Sequence[Figure]) -> Path:
    """Write a dated file with everything; returns its path."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    content = {"machine": about, "figures": [asdict(figure) for figure in figures]}
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def write_page(about: dict[str, str], figures: Sequence[Figure]) -> None:
    """Put a run into the tables of docs/benchmarks.md; figures that it left out stay."""
    text = with_rows(PAGE.read_text(), "machine", about.items())
    PAGE.write_text(with_rows(text, "figure", [figure.row() for figure in figures]))


def with_rows(page: str, head: str, rows: Iterable[Sequence[str]]) -> str:
    """Return the page with these rows in the table whose first column is called `head`.

    A row takes the place of that with the same first cell; if there is none, it comes last.
    """
    lines = page.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {head} |")) + 2
    end = next(n for n in range(start, len(lines)) if not lines[n].startswith("|"))
    kept = {line.split(" | ")[0]: line for line in lines[start:end]}
    for first, *others in rows:
        kept[f"| {first}"] = f"| {' | '.join((first, *others))} |"
    return "\n".join([*lines[:start], *kept.values(), *lines[end:]]) + "\n"
