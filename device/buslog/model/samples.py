"""Sends of a log folder by payload: what the model and the clock say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from device.buslog.analysis import Path as Way
from device.buslog.analysis import Transfer, transfers
from device.buslog.model.counts import Counts
from device.buslog.model.model import Model


def mean(values: Iterable[float]) -> float:
    """Of at least one value."""
    found = list(values)
    return sum(found) / len(found)


class Setting(Enum):
    """What the sends of a log had in common."""

    DOORBELL = "without BlueFlame"
    BLUEFLAME = "with BlueFlame"
    FIRST_ATTEMPT = "with entries in the wrong page"


@dataclass(slots=True)
class Sample:
    """One send, in microseconds: modelled latency and processor time; `wall` by the clock."""

    way: Way
    latency: float
    cpu: float
    wall: float
    path: Counts


@dataclass(slots=True)
class Samples:
    """The sends of one log by payload in bytes."""

    setting: Setting
    by_size: dict[int, list[Sample]] = field(default_factory=dict)

    def sizes(self, low: int, high: int) -> list[int]:
        """Payloads within the limits, both included."""
        return sorted(size for size in self.by_size if low <= size <= high)

    def latency(self, low: int, high: int) -> float | None:
        """Mean over the sizes, each of which is a mean over its sends; None without any."""
        means = [mean(each.latency for each in self.by_size[n]) for n in self.sizes(low, high)]
        return mean(means) if means else None

    def cpu(self, low: int, high: int) -> float | None:
        """As `latency`, of processor time."""
        means = [mean(each.cpu for each in self.by_size[n]) for n in self.sizes(low, high)]
        return mean(means) if means else None


def read_samples(folder: Path, model: Model) -> Samples:
    """The messages with data in a log, of its most frequent operation; raises `LogError`."""
    found = [each for each in transfers(folder) if each.length and each.opcode]
    opcodes = Counter(each.opcode for each in found)
    if not opcodes:
        return Samples(Setting.DOORBELL)
    opcode = opcodes.most_common(1)[0][0]
    return collect((each for each in found if each.opcode == opcode), model)


def collect(found: Iterable[Transfer], model: Model) -> Samples:
    """The same from transfers."""
    by_size: dict[int, list[Sample]] = {}
    ways: Counter[Way] = Counter()
    for each in found:
        ways[each.path] += 1
        sample = Sample(
            each.path, model.latency(each), model.cpu(each), each.wall_us, model.path(each)
        )
        by_size.setdefault(each.length, []).append(sample)
    return Samples(_setting(ways), by_size)


def _setting(ways: Counter[Way]) -> Setting:
    if ways[Way.BLUEFLAME]:
        return Setting.BLUEFLAME
    return Setting.FIRST_ATTEMPT if ways[Way.FALLBACK] else Setting.DOORBELL


def merge(parts: Sequence[Samples], setting: Setting) -> Samples:
    """All of one setting."""
    merged = Samples(setting)
    for part in parts:
        if part.setting is setting:
            for size, samples in part.by_size.items():
                merged.by_size.setdefault(size, []).extend(samples)
    return merged
