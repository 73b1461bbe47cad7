"""The keeper's record of its pair: a small JSON file, replaced whole at every change."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from string import ascii_lowercase
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
    """The record of one guest; paths are text for JSON."""

    name: str
    state: str = STARTING
    why: str = ""
    """One clause that says why the guest ended; empty if it did not."""
    remark: str = ""
    """The console's last message of a kernel in trouble; the guest may still be usable."""
    pid: int = 0
    """The process id of QEMU."""
    transcript: str = ""
    console: str = ""
    """The path of the serial console's socket, on which QEMU serves one client."""
    agents: list[str] = field(default_factory=list)
    """The paths of the sockets of the agent's ports."""
    devices: list[str] = field(default_factory=list)


@dataclass
class PairRecord:
    """The record of a running pair, with its guests and processes."""

    number: int
    guests: list[GuestRecord]
    keeper: int = 0
    """The process id of the keeper."""
    server: int = 0
    """The process id of the device server, 0 without one."""
    state: str = STARTING
    why: str = ""
    started: float = 0.0
    """The time of the pair's start, in seconds since the epoch."""
    logs: str = ""
    modules: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def guest(self, name: str) -> GuestRecord:
        """Return the record of the guest called `name`; raises `KeyError`."""
        for guest in self.guests:
            if guest.name == name:
                return guest
        raise KeyError(name)

    def names(self) -> Iterator[str]:
        """Return the names of the pair's guests."""
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
        """Read the record at `path`; fields that only another version has are left out.

        Raises `OSError` when there is no such file.
        """
        told: dict[str, Any] = json.loads(path.read_text())
        told["guests"] = [GuestRecord(**_known(GuestRecord, guest)) for guest in told["guests"]]
        return cls(**_known(cls, told))


def _known(kind: type[DataclassInstance], told: dict[str, Any]) -> dict[str, Any]:
    """Return the items of `told` that are fields of the dataclass `kind`."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in told.items() if name in names}


def guest_names(number: int, count: int = 2) -> tuple[str, ...]:
    """Return the names of a pair's guests by the pair's number: a and b, a2 and b2, and so on.

    A lab of more guests goes on with c.
    """
    suffix = "" if number == 1 else str(number)
    return tuple(f"{letter}{suffix}" for letter in ascii_lowercase[:count])
