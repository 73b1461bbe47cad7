"""Sends of a log folder by payload: what the model and the clock say of them, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from bluebridge.device.buslog.analysis import Path as Way
from bluebridge.device.buslog.analysis import Transfer, transfers
from bluebridge.device.buslog.model.counts import Counts
from bluebridge.device.buslog.model.model import Model
from bluebridge.device.buslog.reader import LogReader

STUDIED = "RDMA_WRITE"
"""What the study's `rdma_lat` sends. A log has other messages, too: its programs talk over TCP."""


class Setting(Enum):
    """What the studied sends of a log had in common."""

    DOORBELL = "without BlueFlame"
    BLUEFLAME = "with BlueFlame"
    FIRST_ATTEMPT = "with entries in the wrong page"


@dataclass(slots=True)
class Group:
    """Sends of one payload whose entries came in one way: their number, and sums over them.

    Microseconds: modelled latency, modelled processor time, and `wall` by the clock.
    """

    sends: int = 0
    latency: float = 0.0
    cpu: float = 0.0
    wall: float = 0.0
    path: Counts = field(default_factory=Counts)

    def add(self, transfer: Transfer, model: Model) -> None:
        """One send more."""
        path = model.path(transfer)
        self.sends += 1
        self.latency += path.time(model.profile)
        self.cpu += model.cpu(transfer)
        self.wall += transfer.wall_us
        self.path += path


Key = tuple[str, int, Way]


@dataclass(slots=True)
class Samples:
    """The sends of one log by operation, payload in bytes and way.

    `cut`: the log's last event is cut short, `dropped`: its oldest are gone.
    """

    setting: Setting = Setting.DOORBELL
    groups: dict[Key, Group] = field(default_factory=dict)
    cut: bool = False
    dropped: bool = False

    def of_size(self, low: int, high: int) -> dict[int, list[Group]]:
        """The studied groups of each payload within the limits, both included."""
        found: dict[int, list[Group]] = {}
        for (operation, size, _), group in self.groups.items():
            if operation == STUDIED and low <= size <= high:
                found.setdefault(size, []).append(group)
        return found

    def latency(self, low: int, high: int) -> float | None:
        """Mean over the sizes, each of which is a mean over its sends; None without any."""
        return _mean(
            sum(each.latency for each in groups) / sum(each.sends for each in groups)
            for groups in self.of_size(low, high).values()
        )

    def cpu(self, low: int, high: int) -> float | None:
        """As `latency`, of processor time."""
        return _mean(
            sum(each.cpu for each in groups) / sum(each.sends for each in groups)
            for groups in self.of_size(low, high).values()
        )


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def read_samples(folder: Path, model: Model) -> Samples:
    """The messages with data in a log; raises `LogError`."""
    reader = LogReader(folder)
    samples = Samples(dropped=reader.dropped)
    for each in transfers(reader):
        if each.length and each.opcode:
            key = each.opcode, each.length, each.path
            samples.groups.setdefault(key, Group()).add(each, model)
    samples.cut = reader.cut
    ways = {way for operation, _, way in samples.groups if operation == STUDIED}
    if Way.BLUEFLAME in ways:
        samples.setting = Setting.BLUEFLAME
    elif Way.FALLBACK in ways:
        samples.setting = Setting.FIRST_ATTEMPT
    return samples


def merge(parts: Sequence[Samples], setting: Setting) -> Samples:
    """All of one setting."""
    merged = Samples(setting)
    for part in parts:
        if part.setting is not setting:
            continue
        for key, group in part.groups.items():
            total = merged.groups.setdefault(key, Group())
            total.sends += group.sends
            total.latency += group.latency
            total.cpu += group.cpu
            total.wall += group.wall
            total.path += group.path
    return merged
