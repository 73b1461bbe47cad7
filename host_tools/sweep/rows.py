"""The rows of a sweep: one payload as it was measured, with one setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Wall:
    """The times of a message one way, in microseconds of the guest's clock."""

    typical: float
    best: float
    worst: float


@dataclass(frozen=True, slots=True)
class Row:
    """A payload with a setting.

    `modelled` are microseconds of bus time by profile, from the transactions in the bus log: never
    to be mixed with `wall`. `path` is how the device got most of the entries, in the words of
    `bluebridge.host_tools.analyzer.analysis.PostedBy`.
    """

    setting: str
    size: int
    wall: Wall
    path: str = ""
    modelled: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain values."""
        wall = {"typical": self.wall.typical, "best": self.wall.best, "worst": self.wall.worst}
        return {
            "setting": self.setting,
            "size": self.size,
            "wall": wall,
            "path": self.path,
            "modelled": dict(self.modelled),
        }

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Row:
        """Return the row of plain values; raises `KeyError` or `TypeError` for anything else."""
        return cls(
            str(values["setting"]),
            int(values["size"]),
            Wall(**values["wall"]),
            str(values["path"]),
            dict(values["modelled"]),
        )
