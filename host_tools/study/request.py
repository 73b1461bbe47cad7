"""The request for a sweep, checked, and its rows: one payload as it was measured."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bluebridge.host_tools.errors import UsageError

LARGEST = 1 << 16
MOST_ITERATIONS = 5000
"""The most iterations of a payload, whose part of the bus log must fit into what the log keeps."""
INLINE = 220
"""The bytes that ib_write_lat asks to be inline (perftest_parameters.h: DEF_INLINE_WRITE)."""
MOST_INLINE = 912
PROFILES = ("system-x", "system-z")
SETTINGS = {"perftest": ("on", "off"), "guest": ("on", "off", "wrong-page", "old-size")}
PICTURES = (".png", ".svg")


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
        return asdict(self)

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


@dataclass(frozen=True)
class SweepRequest:
    """The request for a sweep; sweeps of equal requests may continue each other."""

    minimum: int
    maximum: int
    step: int
    settings: tuple[str, ...]
    tool: str = "perftest"
    iterations: int = 200
    register: int = 512
    inline: int = INLINE
    profiles: tuple[str, ...] = PROFILES

    @classmethod
    def of(cls, options: argparse.Namespace) -> SweepRequest:
        """Return the request of a command line. Raises `UsageError` for one that cannot be."""
        request = cls(
            options.min,
            options.max,
            options.step,
            tuple(options.blueflame.split(",")),
            options.tool,
            options.iterations,
            options.blueflame_size,
            INLINE if options.inline is None else options.inline,
            tuple(options.profile or PROFILES),
        )
        request.check()
        return request

    def check(self) -> None:
        """Raise `UsageError`, one line with the mend, for a request that cannot be carried out."""
        if not 1 <= self.minimum <= self.maximum <= LARGEST:
            raise UsageError(
                f"there is no payload from {self.minimum} to {self.maximum} bytes",
                f"give 1 <= --min <= --max <= {LARGEST}",
            )
        if self.step < 1:
            raise UsageError(f"--step {self.step} leads nowhere", "give 1 or more")
        if not 5 <= self.iterations <= MOST_ITERATIONS:
            raise UsageError(
                f"--iterations {self.iterations} cannot be", f"give 5 to {MOST_ITERATIONS}"
            )
        if not 0 <= self.inline <= MOST_INLINE:
            raise UsageError(f"--inline {self.inline} cannot be", f"give 0 to {MOST_INLINE}")
        known = SETTINGS[self.tool]
        wrong = [each for each in self.settings if each not in known]
        if wrong or len(set(self.settings)) != len(self.settings):
            raise UsageError(
                f"--blueflame {','.join(self.settings)} cannot be",
                f"give each of {', '.join(known)} at most once, with commas",
            )
        if len(set(self.profiles)) != len(self.profiles):
            raise UsageError("a profile is given twice", "give each --profile once")

    @property
    def sizes(self) -> range:
        """The sizes of the payloads in bytes."""
        return range(self.minimum, self.maximum + 1, self.step)

    @property
    def buffer(self) -> int:
        """The bytes of half a register: the largest entry that goes through BlueFlame."""
        return self.register // 2

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain values for the journal."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }


def check_files(options: argparse.Namespace) -> None:
    """Raise `UsageError` for files that cannot be written, before anything boots."""
    for path in options.plot:
        if path.suffix not in PICTURES:
            raise UsageError(
                f"--plot {path}: no plot ends in {path.suffix or 'nothing'}",
                f"end it in {' or '.join(PICTURES)}",
            )
    files: list[Path] = [options.output, *options.plot]
    if len(set(files)) != len(files):
        raise UsageError("a file is named twice", "give each result a file of its own")
    for path in files:
        if path.is_dir():
            raise UsageError(f"{path} is a folder", "name a file")
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent}", "make it first")
        if path.exists() and not options.force:
            raise UsageError(f"{path} exists", "name another file, or replace it with --force")
