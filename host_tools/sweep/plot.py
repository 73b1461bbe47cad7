"""The pictures of a sweep, and its page with picture, steps and table, which loads nothing else."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.sweep.modelled import Threshold, thresholds
from bluebridge.host_tools.sweep.request import Row, SweepRequest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_COLOURS = {"on": "#1f6fb4", "off": "#c8541d", "wrong-page": "#7a3ea8", "old-size": "#2e8b57"}
_WIDTH, _PANEL, _HEAD = 9.0, 2.6, 0.8  # inches
_DOTS = 110
_CLOSE = 0.04
"""The part of the width below which two labels would overlap."""
_NOTHING = dict.fromkeys(("Creator", "Date", "Format", "Type"))
"""Metadata of an SVG: the same sweep gives the same bytes."""


def require() -> None:
    """Raise `LabError` without matplotlib, which only the package's extra `plot` installs."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        mend = "`pip install 'bluebridge[plot]'` brings it"
        raise LabError("matplotlib is missing", mend) from error


def save_picture(request: SweepRequest, rows: Sequence[Row], path: Path) -> None:
    """Write a picture in the format of the file's ending. Raises `LabError` without matplotlib."""
    figure = _figure(request, rows)
    buffer = io.BytesIO()
    kind = path.suffix.removeprefix(".")
    figure.savefig(buffer, format=kind, dpi=_DOTS, metadata=_NOTHING if kind == "svg" else {})
    path.write_bytes(buffer.getvalue())


def svg(request: SweepRequest, rows: Sequence[Row]) -> str:
    """Return the picture as an `<svg>` element."""
    buffer = io.StringIO()
    _figure(request, rows).savefig(buffer, format="svg", metadata=_NOTHING)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _figure(request: SweepRequest, rows: Sequence[Row]) -> Figure:
    require()
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"svg.hashsalt": "bluebridge", "font.size": 9})
    panels = 1 + len(request.profiles)
    figure = Figure(figsize=(_WIDTH, _HEAD + panels * _PANEL), layout="constrained")
    axes: list[Axes] = list(figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0])
    program = "ib_write_lat" if request.tool == "perftest" else "Python driver"
    figure.suptitle(f"RDMA WRITE latency ({program}), registers of {request.register} B")
    _wall(axes[0], request, rows)
    for panel, name in zip(axes[1:], request.profiles, strict=True):
        _modelled(panel, request, rows, name)
    for number, panel in enumerate(axes):
        _steps(panel, request, named=number == 0)
        panel.grid(alpha=0.25)
        panel.legend(loc="lower right" if number else "best", fontsize=8)
    axes[-1].set_xlabel("payload in bytes")
    return figure


def _wall(panel: Axes, request: SweepRequest, rows: Sequence[Row]) -> None:
    """Typical as a line, best as a thinner one; the worst would dwarf both."""
    for setting in request.settings:
        kept = _of(rows, setting)
        sizes = [row.size for row in kept]
        colour = _COLOURS[setting]
        panel.plot(sizes, [row.wall.typical for row in kept], color=colour, label=_label(setting))
        panel.plot(sizes, [row.wall.best for row in kept], color=colour, lw=0.6, ls=":")
    panel.set_ylabel("wall time, us")
    panel.plot([], [], color="#555555", lw=0.6, ls=":", label="best of each")
    panel.set_yscale("log")  # a busy host makes outliers of a hundred times


def _modelled(panel: Axes, request: SweepRequest, rows: Sequence[Row], name: str) -> None:
    for setting in request.settings:
        kept = _of(rows, setting)
        panel.plot(
            [row.size for row in kept],
            [row.modelled[name] for row in kept],
            color=_COLOURS[setting],
            label=_label(setting),
            # Where settings are equal both are to be seen.
            ls=(0, (4, 3)) if setting == "off" else "-",
        )
    panel.set_ylabel("modelled time, us")
    panel.set_title(f"modelled bus time, profile {name}", fontsize=9)
    panel.set_ylim(bottom=0)


def _steps(panel: Axes, request: SweepRequest, *, named: bool) -> None:
    """Where the driver changes its way (see `thresholds`)."""
    steps = thresholds(request)
    for step in steps:
        panel.axvline(step.payload, color="#777777", lw=0.7, ls="--")
    if named:
        names = panel.secondary_xaxis("top")
        labels = _labels(steps, (request.maximum - request.minimum) * _CLOSE)
        names.set_xticks(list(labels), labels.values(), fontsize=7)
        for label in names.get_xticklabels():
            label.set(rotation=40, ha="left", va="bottom", rotation_mode="anchor")


def _labels(steps: Sequence[Threshold], close: float) -> dict[int, str]:
    """Texts by the payload they stand at; steps nearer than `close` to one share its place."""
    labels: dict[int, str] = {}
    for step in steps:
        text = f"{step.payload}: {step.text}"
        last = next(reversed(labels), None)
        if last is not None and step.payload - last < close:
            labels[last] += f"\n{text}"
        else:
            labels[step.payload] = text
    return labels


def _label(setting: str) -> str:
    return f"BlueFlame {setting}"


def _of(rows: Iterable[Row], setting: str) -> list[Row]:
    return sorted((row for row in rows if row.setting == setting), key=lambda row: row.size)


_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em }
svg { width: 100%; height: auto }
table { border-collapse: collapse; margin: 1em 0 }
th, td { border: 1px solid #ccc; padding: 2px 8px; text-align: right }
thead { position: sticky; top: 0; background: #eee }
"""


def save_page(request: SweepRequest, rows: Sequence[Row], path: Path) -> None:
    """Write the page. Raises `LabError` without matplotlib."""
    title = f"Latency sweep, {request.minimum} to {request.maximum} bytes"
    steps = "".join(
        f"<li>{step.payload} bytes: {escape(step.text)}</li>" for step in thresholds(request)
    )
    wall = _table(request, rows, ("typical", "best", "worst"), _wall_cells)
    modelled = _table(
        request,
        rows,
        ("way", *request.profiles),
        lambda row: [row.path, *(f"{row.modelled[name]:.3f}" for name in request.profiles)],
    )
    body = (
        f"<h1>{title}</h1>\n{svg(request, rows)}\n"
        f"<h2>Largest payloads before each step of the driver</h2>\n<ul>{steps}</ul>\n"
        f"<h2>Wall time, us</h2>\n{wall}\n<h2>Modelled bus time, us</h2>\n{modelled}\n"
    )
    path.write_text(
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n{body}</body></html>\n"
    )


def _wall_cells(row: Row) -> list[str]:
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
