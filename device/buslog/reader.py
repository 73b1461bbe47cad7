"""Reads a bus log, while it is written or after its writer was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from device.buslog.record import META_NAME, RECORD, SEGMENT_GLOB, TEXT_KINDS
from device.layout.buslog import VERSION, Kind, What


class LogError(Exception):
    """A folder that is no bus log, or one of another version; the text says what to do."""


@dataclass(slots=True)
class Event:
    """One event. `time` is in seconds since the log began, `data` may be only its beginning."""

    number: int
    time: float
    device: str
    kind: Kind
    bar: int
    what: What
    obj: int
    address: int
    length: int
    data: bytes

    @property
    def text(self) -> str:
        """The line of a command, note or reset; empty for transfers."""
        return self.data.decode(errors="replace") if self.kind in TEXT_KINDS else ""


class LogReader:
    """A log folder, or a run's folder that has one inside as `bus`. Raises `LogError`."""

    def __init__(self, folder: Path) -> None:
        self.folder = _locate(folder)
        try:
            self.meta: dict[str, Any] = json.loads((self.folder / META_NAME).read_text())
            version = self.meta["version"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LogError(f"{folder} holds no readable {META_NAME}: {error}") from error
        if version != VERSION:
            raise LogError(
                f"{folder} is a bus log of version {version}, this is a reader of {VERSION}: "
                "use the bluebridge that wrote it"
            )

    @property
    def dropped(self) -> bool:
        """Whether older events were thrown away to keep the log bounded."""
        return bool(self.meta.get("segments_dropped"))

    def __iter__(self) -> Iterator[Event]:
        """All events, oldest first; a record cut short by the writer's end is left out."""
        names: list[str] = self.meta["devices"]
        start = int(self.meta["started_monotonic_ns"])
        number = 0
        for path in sorted(self.folder.glob(SEGMENT_GLOB)):
            data = path.read_bytes()
            position, end = 0, len(data)
            while position + RECORD.size <= end:
                when, device, kind, bar, what, obj, address, length, kept = RECORD.unpack_from(
                    data, position
                )
                position += RECORD.size
                if position + kept > end:
                    break
                yield Event(
                    number,
                    (when - start) / 1e9,
                    names[device] if device < len(names) else str(device),
                    Kind(kind),
                    bar,
                    What(what),
                    obj,
                    address,
                    length,
                    data[position : position + kept],
                )
                number += 1
                position += kept


def _locate(folder: Path) -> Path:
    for candidate in (folder, folder / "bus"):
        if (candidate / META_NAME).is_file():
            return candidate
    raise LogError(f"{folder} holds no bus log ({META_NAME} is missing)")
