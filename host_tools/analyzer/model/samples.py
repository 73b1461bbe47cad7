"""Sends of a log by payload: sums of modelled and wall-clock times, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.analyzer.analysis import PostedBy, Transfer, transfers
from bluebridge.host_tools.analyzer.model.model import EventCounts, Model

STUDIED = "RDMA_WRITE"
"""Operation of the study's `rdma_lat`; a log also has messages of the programs' TCP."""


class Setting(Enum):
    """The ways in which the studied sends of a log were posted."""

    DOORBELL = "without BlueFlame"
    BLUEFLAME = "with BlueFlame"
    FIRST_ATTEMPT = "with entries in the wrong page"


@dataclass(slots=True)
class SendGroup:
    """Sends of one payload and one `PostedBy`: their number, and sums over them.

    The sums are in microseconds: modelled latency, modelled processor time, and `wall` by the
    server's clock.
    """

    sends: int = 0
    latency: float = 0.0
    cpu: float = 0.0
    wall: float = 0.0
    counts: EventCounts = field(default_factory=EventCounts)

    def add(self, transfer: Transfer, model: Model) -> None:
        """Count a send into the group."""
        counts = model.latency_counts(transfer)
        self.sends += 1
        self.latency += counts.time(model.profile)
        self.cpu += model.cpu(transfer)
        self.wall += transfer.wall_us
        self.counts += counts


Key = tuple[str, int, PostedBy]


@dataclass(slots=True)
class Samples:
    """The sends of one log by operation, payload in bytes and `PostedBy`.

    `cut`: the log's last event is incomplete; `dropped`: its oldest events were deleted.
    """

    setting: Setting = Setting.DOORBELL
    groups: dict[Key, SendGroup] = field(default_factory=dict)
    cut: bool = False
    dropped: bool = False

    def of_size(self, low: int, high: int) -> dict[int, list[SendGroup]]:
        """Return the studied groups of each payload from `low` to `high` bytes, both included."""
        found: dict[int, list[SendGroup]] = {}
        for (operation, size, _), group in self.groups.items():
            if operation == STUDIED and low <= size <= high:
                found.setdefault(size, []).append(group)
        return found

    def latency(self, low: int, high: int) -> float | None:
        """Return the mean latency over the payloads from `low` to `high`; None without any.

        The value of each payload is the mean over its sends.
        """
        return _mean(
            sum(each.latency for each in groups) / sum(each.sends for each in groups)
            for groups in self.of_size(low, high).values()
        )

    def cpu(self, low: int, high: int) -> float | None:
        """Return the mean modelled microseconds of processor time, as `latency` does of latency."""
        return _mean(
            sum(each.cpu for each in groups) / sum(each.sends for each in groups)
            for groups in self.of_size(low, high).values()
        )


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def read_samples(folder: Path, model: Model) -> Samples:
    """Read the messages with data of a log; raises `LogError`."""
    reader = LogReader(folder)
    samples = Samples(dropped=reader.dropped)
    for each in transfers(reader):
        if each.length and each.opcode:
            key = each.opcode, each.length, each.posted_by
            samples.groups.setdefault(key, SendGroup()).add(each, model)
    samples.cut = reader.cut
    ways = {way for operation, _, way in samples.groups if operation == STUDIED}
    if PostedBy.BLUEFLAME in ways:
        samples.setting = Setting.BLUEFLAME
    elif PostedBy.FALLBACK in ways:
        samples.setting = Setting.FIRST_ATTEMPT
    return samples


def merge(parts: Sequence[Samples], setting: Setting) -> Samples:
    """Return the samples of one setting, added up."""
    merged = Samples(setting)
    for part in parts:
        if part.setting is not setting:
            continue
        for key, group in part.groups.items():
            total = merged.groups.setdefault(key, SendGroup())
            total.sends += group.sends
            total.latency += group.latency
            total.cpu += group.cpu
            total.wall += group.wall
            total.counts += group.counts
    return merged
