"""One cost measured at several sizes, its exponent, and the table of all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bluebridge.host_tools.campaigns.bench.figures import Figure, plain

PREFIX = "growth."
"""Of the keys of figures that are rows of the page's table of growth."""


def series(key: str, title: str, unit: str, costs: Mapping[int, float]) -> list[Figure]:
    """A figure for each size; `costs` has the cost at each. No other series has this `key`."""
    return [plain(f"{PREFIX}{key}.{size}", title, cost, unit) for size, cost in costs.items()]


def exponent(costs: Mapping[int, float]) -> float | None:
    """The slope of log(cost) over log(size), by least squares: 0 is flat, 1 proportional.

    None where it is not defined: fewer than two sizes, or a cost of zero.
    """
    if len(costs) < 2 or min(costs.values()) <= 0:
        return None
    xs = [math.log(size) for size in costs]
    ys = [math.log(cost) for cost in costs.values()]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x_mean) ** 2 for x in xs)


def table(figures: Sequence[Figure]) -> str:
    """The figures of `series` as a table: a row for each cost, its exponent last."""
    rows: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.key.startswith(PREFIX):
            rows.setdefault(_cost(figure), []).append(figure)
    lines = ["| cost | at | measured | exponent |", "|---|---|---|---|"]
    lines += [_row(sorted(row, key=_size)) for row in rows.values()]
    return "\n".join(lines)


def _row(figures: Sequence[Figure]) -> str:
    costs = {_size(figure): figure.value for figure in figures}
    found = exponent(costs)
    sizes = " · ".join(f"{size:,}" for size in costs)
    values = " · ".join(_shown(cost) for cost in costs.values())
    shown = "" if found is None else f"{found:.2f}".replace("-0.00", "0.00")
    return f"| {figures[0].title} | {sizes} | {values} {figures[0].unit} | {shown} |"


def _shown(cost: float) -> str:
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:.3g}"


def _cost(figure: Figure) -> str:
    return figure.key.removeprefix(PREFIX).rpartition(".")[0]


def _size(figure: Figure) -> int:
    return int(figure.key.rpartition(".")[2])
