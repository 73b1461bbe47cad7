"""The keeper's record of its pair: a small JSON file, replaced whole at every change."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

STARTING, RUNNING, RESTARTING, ENDED, ENDING = (
    "starting",
    "running",
    "restarting",
    "ended",
    "ending",
)
"""States. A guest is starting, running, restarting or ended; a pair starting, running, ending."""


@dataclass
class GuestRecord:
    """One guest. Paths are text, as JSON wants them."""

    name: str
    state: str = STARTING
    why: str = ""
    """Why it ended, one clause; empty otherwise."""
    remark: str = ""
    """The last message of its console about a kernel in trouble; the guest may still be of use."""
    pid: int = 0
    """The process id of QEMU."""
    transcript: str = ""
    console: str = ""
    """Socket of the serial console; QEMU serves one client."""
    agents: list[str] = field(default_factory=list)
    """Sockets of the agent's ports."""
    devices: list[str] = field(default_factory=list)


@dataclass
class PairRecord:
    """The record of a pair."""

    number: int
    guests: list[GuestRecord]
    keeper: int = 0
    """The process id of the keeper."""
    server: int = 0
    """The device server's process."""
    state: str = STARTING
    why: str = ""
    started: float = 0.0
    """The time of its start, in seconds since the epoch."""
    logs: str = ""
    modules: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def guest(self, name: str) -> GuestRecord:
        """The guest of that name; raises `KeyError`."""
        for guest in self.guests:
            if guest.name == name:
                return guest
        raise KeyError(name)

    def names(self) -> Iterator[str]:
        """The guests' names."""
        return (guest.name for guest in self.guests)

    def write(self, path: Path) -> None:
        """Replace the file at `path`; a reader sees the old one or the new one.

        Raises `OSError` that names the file.
        """
        draft = path.with_name(f".{path.name}")
        try:
            draft.write_text(json.dumps(asdict(self)))
            os.replace(draft, path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error

    @classmethod
    def read(cls, path: Path) -> PairRecord:
        """Raises `OSError` when there is none; of another version it takes what it knows."""
        told: dict[str, Any] = json.loads(path.read_text())
        told["guests"] = [GuestRecord(**_known(GuestRecord, guest)) for guest in told["guests"]]
        return cls(**_known(cls, told))


def _known(kind: type[DataclassInstance], told: dict[str, Any]) -> dict[str, Any]:
    """Those of the fields that `kind` has."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in told.items() if name in names}


def guest_names(number: int) -> tuple[str, str]:
    """The names of a pair's guests: a and b, a2 and b2, and so on."""
    suffix = "" if number == 1 else str(number)
    return f"a{suffix}", f"b{suffix}"
