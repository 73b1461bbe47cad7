"""A sweep so far: its measurements in a file, so that it can go on."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.study.request import Row, SweepRequest

SUFFIX = ".part"


class Journal:
    """Context manager: one line with the request, then one for each row, written at once.

    Raises `UsageError` when the file belongs to a sweep of other options or one that still runs.
    """

    def __init__(self, output: Path, request: SweepRequest) -> None:
        self.path = output.with_name(output.name + SUFFIX)
        self._request = request
        self.rows: list[Row] = []

    def __enter__(self) -> Journal:
        self._file = self.path.open("a+")
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self.kept():
            self.path.unlink(missing_ok=True)  # nothing to go on from
        self._file.close()

    def add(self, row: Row) -> None:
        """Keep a row, which is in the file before this returns."""
        self._write(row.as_json())
        self.rows.append(row)

    def kept(self) -> int:
        """The number of rows in the file: a signal may come between writing one and noting it."""
        self._file.flush()
        self._file.seek(0)
        return max(0, self._file.read().count("\n") - 1)

    def todo(self) -> Iterator[tuple[str, list[int]]]:
        """Each setting with the payloads it still lacks, if any."""
        for setting in self._request.settings:
            done = {row.size for row in self.rows if row.setting == setting}
            if left := [size for size in self._request.sizes if size not in done]:
                yield setting, left

    def remove(self) -> None:
        """Remove the journal: all is done and written elsewhere."""
        self.path.unlink(missing_ok=True)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"a sweep that writes {self.path} is under way", "wait for it, or use another -o"
            ) from None

    def _read(self) -> None:
        self._file.seek(0)
        text = self._file.read()
        if not text:
            self._write(self._request.as_json())
            return
        lines = text.splitlines(keepends=True)
        if not lines[-1].endswith("\n"):  # killed in the middle of it
            self._file.truncate(len(text.encode()) - len(lines.pop().encode()))
        try:
            request, *rows = (json.loads(line) for line in lines)
            if request != self._request.as_json():
                raise UsageError(
                    f"{self.path} is of an unfinished sweep with other options",
                    "give the same again, or remove it",
                )
            self.rows = [Row.of_json(row) for row in rows]
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{self.path} is no journal of a sweep", "remove it") from error

    def _write(self, values: dict[str, object]) -> None:
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
