"""Text tables: the study's values beside the modelled ones, and the costs of a log's sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bluebridge.host_tools.analyzer.model.model import Model
from bluebridge.host_tools.analyzer.model.samples import Key, Samples, SendGroup, Setting, merge
from bluebridge.host_tools.analyzer.model.study import READS_45, StudyRow, StudyTable


@dataclass(frozen=True, slots=True)
class Compared:
    """A row of the study beside the model: microseconds without BlueFlame and with it."""

    row: StudyRow
    doorbell: float
    blueflame: float
    doorbell_cpu: float
    blueflame_cpu: float

    @property
    def errors(self) -> tuple[float, float]:
        """Relative errors of the model, as fractions of the study's times."""
        row = self.row
        return self.doorbell / row.doorbell - 1, self.blueflame / row.blueflame - 1

    @property
    def gain(self) -> float:
        """Fraction of the time that BlueFlame saves in the model."""
        return 1 - self.blueflame / self.doorbell if self.doorbell else 0.0

    @property
    def more(self) -> float:
        """Microseconds that sends through BlueFlame take longer in the model."""
        return self.blueflame - self.doorbell


def compare(table: StudyTable, logs: Sequence[Samples]) -> list[Compared]:
    """Compare a table with the logs.

    Raises `ValueError` when the logs lack the sends of a row.
    """
    without = merge(logs, Setting.DOORBELL)
    other = Setting.FIRST_ATTEMPT if table.first_attempt else Setting.BLUEFLAME
    with_it = merge(logs, other)
    return [_compare(row, without, with_it) for row in table.rows]


def _compare(row: StudyRow, without: Samples, with_it: Samples) -> Compared:
    times, costs = [], []
    for samples in (without, with_it):
        latency, cpu = (part(row.low, row.high) for part in (samples.latency, samples.cpu))
        if latency is None or cpu is None:
            raise ValueError(
                f"no RDMA WRITE of {row.low} to {row.high} bytes {samples.setting.value} is in the "
                "logs: add the log of such a sweep"
            )
        times.append(latency)
        costs.append(cpu)
    return Compared(row, times[0], times[1], costs[0], costs[1])


def study_lines(table: StudyTable, model: Model, logs: Sequence[Samples]) -> Iterator[str]:
    """Yield the lines of a table of the study beside the modelled times, in microseconds."""
    other = "wrong page" if table.first_attempt else "BlueFlame"
    last = "more" if table.first_attempt else "gain"
    yield f"{table.title} (us); profile {model.name}"
    yield (
        f"{'payload':>10} {'stores':>8} | {'doorbell':>8} {'modelled':>8} {'off by':>7} | "
        f"{other:>10} {'modelled':>8} {'off by':>7} | {last:>7} {'modelled':>8} | "
        f"{'CPU, doorbell':>13} {other:>10}"
    )
    for each in compare(table, logs):
        row = each.row
        first, second = each.errors
        effect = f"{row.gain:7.2%} {each.gain:8.2%}"
        if table.first_attempt:
            effect = f"{row.more:+7.2f} {each.more:+8.2f}"
        yield (
            f"{f'{row.low}-{row.high}':>10} {row.operations:>8} | "
            f"{row.doorbell:8.2f} {each.doorbell:8.2f} {first:+7.1%} | "
            f"{row.blueflame:10.2f} {each.blueflame:8.2f} {second:+7.1%} | {effect} | "
            f"{each.doorbell_cpu:13.2f} {each.blueflame_cpu:10.2f}"
        )
    effects = {"gain": "part of the doorbell's time that is saved", "more": "what comes on top"}
    yield f"{last}: {effects[last]}; CPU: modelled, of the sender's processor, per post"
    seen = " and ".join(f"{us:.2f} us" for _, us in READS_45)
    yield (
        f"round trip of a DMA read: figure 4.5 (System z) shows {seen}; {model.name} says "
        f"{model.profile.us.read:.2f} us"
    )


HEADER = (
    f"{'operation':13} {'payload':>8} {'way':>13} {'sends':>6} | "
    f"{'stores':>6} {'writes':>6} {'entries':>7} {'reads':>6} {'CQEs':>5} | "
    f"{'modelled us':>11} {'CPU us':>7} | {'wall us':>9}"
)


def size_lines(model: Model, logs: Sequence[Samples], folders: Sequence[Path]) -> Iterator[str]:
    """Yield counts, modelled and wall time by payload and `PostedBy`.

    Of several logs each row begins with the number of its folder; the folders come first.
    """
    yield f"mean of each send until its message is there; profile {model.name}"
    many = len(folders) > 1
    if many:
        yield from (f"log {number}: {folder}" for number, folder in enumerate(folders, 1))
    yield f"log {HEADER}" if many else HEADER
    for number, (operation, size, way), group in sorted_groups(logs):
        line = _size_line(operation, size, way.value, group)
        yield f"{number:3} {line}" if many else line
    yield "stores: BlueFlame store operations; writes: in writes of 64 bytes; entries: fetched ones"


def sorted_groups(logs: Sequence[Samples]) -> list[tuple[int, Key, SendGroup]]:
    """Return the groups of all logs, each with the number of its log, from 1.

    They are sorted by operation, payload and way of posting.
    """
    groups = [
        (number, key, group)
        for number, log in enumerate(logs, 1)
        for key, group in log.groups.items()
    ]
    return sorted(groups, key=lambda each: (*each[1][:2], each[1][2].value, each[0]))


def _size_line(operation: str, size: int, way: str, group: SendGroup) -> str:
    counts, sends = group.counts, group.sends
    return (
        f"{operation:13} {size:8} {way:>13} {sends:6} | "
        f"{counts.store / sends:6.2f} {counts.write / sends:6.2f} {counts.turn / sends:7.2f} "
        f"{counts.read / sends:6.2f} {counts.completion / sends:5.2f} | "
        f"{group.latency / sends:11.3f} {group.cpu / sends:7.3f} | {group.wall / sends:9.1f}"
    )
