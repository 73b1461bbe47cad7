"""The rounds of a run as JSON lines, and beside them a transcript of what was said."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bluebridge.host_tools.host_description import HostDescription
from bluebridge.host_tools.lab.device_server import DeviceServer


@dataclass(frozen=True)
class Stock:
    """Resources that must not pile up in the device server."""

    memory: int
    """The bytes of the server's own memory, without guest memory."""
    files: int
    """The number of open file descriptors of the server."""

    @classmethod
    def of(cls, server: DeviceServer) -> Stock:
        """Return the stock of a device server now."""
        return cls(server.resident_bytes(), len(os.listdir(f"/proc/{server.pid}/fd")))


@dataclass(frozen=True)
class Round:
    """One round: what was done, how long it took, what was wrong, what the server had then."""

    number: int
    kind: str
    what: str
    seconds: float
    stock: Stock | None
    """None when the round left nothing to look at."""
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """A run whose time is over, as its page tells of it beside the rounds."""

    setup: str
    seed: int
    kill_every: int
    minutes: float
    machine: HostDescription


TITLE = re.compile(r"=== \d\d:\d\d:\d\d (.*)")
"""A line of the transcript that begins a section."""


class Rounds:
    """The rounds of a run in its folder: records for programs, and a transcript for people."""

    RECORDS = "rounds.jsonl"
    TRANSCRIPT = "transcript.txt"
    RUN = "run.json"

    def __init__(self, folder: Path) -> None:
        """Make the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.transcript = folder / self.TRANSCRIPT
        self.done: list[Round] = []

    def add(self, found: Round) -> None:
        """Remember a round, on disk at once."""
        self.done.append(found)
        with (self.folder / self.RECORDS).open("a") as stream:
            stream.write(json.dumps(asdict(found)) + "\n")

    def end(self, run: Run) -> None:
        """The time is over; without this a run has no page."""
        (self.folder / self.RUN).write_text(json.dumps(asdict(run)) + "\n")

    def say(self, title: str, text: str = "") -> None:
        """Add a section to the transcript."""
        with self.transcript.open("a") as stream:
            stream.write(f"=== {time.strftime('%H:%M:%S')} {title}\n")
            if text.strip():
                stream.write(f"{text.rstrip()}\n")

    @property
    def failed(self) -> Sequence[Round]:
        """The rounds in which something was wrong."""
        return [found for found in self.done if found.failures]
