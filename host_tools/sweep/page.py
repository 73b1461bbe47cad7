"""The page of a sweep with picture, steps and table, in one file that loads nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from bluebridge.host_tools.sweep import plot
from bluebridge.host_tools.sweep.modelled import thresholds
from bluebridge.host_tools.sweep.request import Row, SweepRequest

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em }
svg { width: 100%; height: auto }
table { border-collapse: collapse; margin: 1em 0 }
th, td { border: 1px solid #ccc; padding: 2px 8px; text-align: right }
thead { position: sticky; top: 0; background: #eee }
"""


def save(request: SweepRequest, rows: Sequence[Row], path: Path) -> None:
    """Write the page. Raises `LabError` without matplotlib."""
    title = f"Latency sweep, {request.minimum} to {request.maximum} bytes"
    steps = "".join(
        f"<li>{step.payload} bytes: {escape(step.text)}</li>" for step in thresholds(request)
    )
    wall = _table(request, rows, ("typical", "best", "worst"), _wall)
    modelled = _table(
        request,
        rows,
        ("way", *request.profiles),
        lambda row: [row.path, *(f"{row.modelled[name]:.3f}" for name in request.profiles)],
    )
    body = (
        f"<h1>{title}</h1>\n{plot.svg(request, rows)}\n"
        f"<h2>Largest payloads before each step of the driver</h2>\n<ul>{steps}</ul>\n"
        f"<h2>Wall time, us</h2>\n{wall}\n<h2>Modelled bus time, us</h2>\n{modelled}\n"
    )
    path.write_text(
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}</body></html>\n"
    )


def _wall(row: Row) -> list[str]:
    return [f"{each:.2f}" for each in (row.wall.typical, row.wall.best, row.wall.worst)]


def _table(
    request: SweepRequest,
    rows: Sequence[Row],
    words: Sequence[str],
    cells: Callable[[Row], list[str]],
) -> str:
    """A line for each payload; each setting has a column for each of `words`."""
    by_place = {(row.setting, row.size): row for row in rows}
    head = ["payload", *(f"{setting}: {word}" for setting in request.settings for word in words)]
    lines = []
    for size in request.sizes:
        values = [cell for each in request.settings for cell in cells(by_place[each, size])]
        lines.append(_line("td", [str(size), *values]))
    body = "\n".join(lines)
    return f"<table><thead>{_line('th', head)}</thead>\n<tbody>\n{body}\n</tbody></table>"


def _line(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
