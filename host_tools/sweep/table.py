"""The result as a table of text, the study's four columns first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bluebridge.host_tools.sweep.request import Request
from bluebridge.host_tools.sweep.rows import Row

WALL = ("PacketSize", "LatTypical", "LatBest", "LatWorst")
"""Bytes, then wall microseconds."""
OTHER = ("BlueFlame", "Path")


def text(request: Request, rows: Iterable[Row], *, csv: bool) -> str:
    """Two lines of comment, then a block of rows for each setting.

    Blocks are two empty lines apart: gnuplot's `index 0`, `index 1`.
    """
    separator = "," if csv else " "
    head = [
        f"# RDMA WRITE latency, {request.minimum} to {request.maximum} bytes in steps of "
        f"{request.step}, {request.iterations} iterations; Lat* in us of wall time, Model* in us "
        "of modelled bus time",
        "# " + ", ".join((*WALL, *OTHER, *(f"Model[{name}]" for name in request.profiles))),
    ]
    kept = sorted(rows, key=lambda row: row.size)
    blocks = [
        "\n".join(separator.join(_cells(request, row)) for row in kept if row.setting == setting)
        for setting in request.settings
    ]
    return "\n".join(head) + "\n" + "\n\n\n".join(blocks) + "\n"


def _cells(request: Request, row: Row) -> Sequence[str]:
    wall = (f"{value:.2f}" for value in (row.wall.typical, row.wall.best, row.wall.worst))
    modelled = (f"{row.modelled[name]:.3f}" for name in request.profiles)
    path = row.path.replace(" ", "-")
    return [str(row.size), *wall, row.setting, path, *modelled]
