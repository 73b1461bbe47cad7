"""The pictures of a sweep, by matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.study.modelled import Threshold, thresholds
from bluebridge.host_tools.study.request import Row, SweepRequest

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
    """Raise `LabError` without matplotlib, which only the package's extra `study` installs."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        mend = "`pip install 'bluebridge[study]'` brings it"
        raise LabError("matplotlib is missing", mend) from error


def save_picture(request: SweepRequest, rows: Sequence[Row], path: Path) -> None:
    """Write a picture in the format of the file's ending. Raises `LabError` without matplotlib."""
    figure = _figure(request, rows)
    kind = path.suffix.removeprefix(".")
    figure.savefig(path, format=kind, dpi=_DOTS, metadata=_NOTHING if kind == "svg" else {})


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
