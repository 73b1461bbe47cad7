"""The journal of a run: one JSON line per program, so that a stopped run can go on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bluebridge.host_tools.campaigns.conformance.program import FAILED, Verdict
from bluebridge.host_tools.errors import UsageError


@dataclass(frozen=True)
class Entry:
    """A program that ran under a setup, and its verdicts: several when it reports many tests."""

    setup: str
    suite: str
    name: str
    seconds: float
    verdicts: tuple[Verdict, ...]

    @property
    def key(self) -> str:
        """The name of a program in a run: `setup/suite/name`."""
        return f"{self.setup}/{self.suite}/{self.name}"

    @property
    def failed(self) -> bool:
        """Whether any of its verdicts is a failure."""
        return any(verdict.status == FAILED for verdict in self.verdicts)

    def counts(self) -> Counter[str]:
        """Count the verdicts of each status."""
        return Counter(verdict.status for verdict in self.verdicts)


class Journal:
    """The entries of one run, kept in `folder`/results.jsonl."""

    def __init__(self, folder: Path) -> None:
        """Reads what is there; raises `UsageError` when that is no journal."""
        self.folder = folder
        self._file = folder / "results.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self.entries = list(self._read())

    def _read(self) -> Iterator[Entry]:
        if not self._file.exists():
            return
        for number, line in enumerate(self._file.read_text().splitlines(), 1):
            try:
                yield _entry(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                raise UsageError(
                    f"{self._file}, line {number}: no result of a run",
                    "name another folder, or remove that line",
                ) from error

    def has(self, key: str) -> bool:
        """Whether the program has run."""
        return any(entry.key == key for entry in self.entries)

    def add(self, entry: Entry) -> None:
        """Remember an entry, on disk at once."""
        self.entries.append(entry)
        with self._file.open("a") as stream:
            stream.write(json.dumps(asdict(entry)) + "\n")

    def output(self, entry: Entry) -> Path:
        """The file with what the commands of a program printed, which exists if it failed."""
        name = "".join(char if char.isalnum() or char in "-_." else "_" for char in entry.key)
        return self.folder / f"{name}.txt"

    def keep(self, entry: Entry, texts: Sequence[tuple[str, str]]) -> Path:
        """Write what the commands of a failed program printed; returns the file."""
        path = self.output(entry)
        path.write_text("".join(f"=== {title}\n{text.rstrip()}\n" for title, text in texts))
        return path


def _entry(fields: dict[str, object]) -> Entry:
    verdicts = fields.pop("verdicts")
    if not isinstance(verdicts, list):
        raise TypeError("verdicts")
    return Entry(**fields, verdicts=tuple(Verdict(**found) for found in verdicts))  # type: ignore[arg-type]
