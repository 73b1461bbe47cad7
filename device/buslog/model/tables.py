"""The study's tables beside the modelled ones, and what a log's sends cost, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from device.buslog.model.model import Model
from device.buslog.model.samples import Sample, Samples, Setting, mean, merge
from device.buslog.model.study import READS_45, Row, Table


@dataclass(frozen=True, slots=True)
class Compared:
    """A row of the study beside the model: microseconds without BlueFlame and with it."""

    row: Row
    doorbell: float
    blueflame: float
    doorbell_cpu: float
    blueflame_cpu: float

    @property
    def errors(self) -> tuple[float, float]:
        """By how much the model is off, as parts of the study's times."""
        row = self.row
        return self.doorbell / row.doorbell - 1, self.blueflame / row.blueflame - 1

    @property
    def gain(self) -> float:
        """Part of the time that BlueFlame saves in the model."""
        return 1 - self.blueflame / self.doorbell if self.doorbell else 0.0

    @property
    def more(self) -> float:
        """Microseconds that BlueFlame costs on top in the model."""
        return self.blueflame - self.doorbell


def compare(table: Table, logs: Sequence[Samples]) -> list[Compared]:
    """The rows of a table; raises `ValueError` when the logs lack what one of them needs."""
    without = merge(logs, Setting.DOORBELL)
    other = Setting.FIRST_ATTEMPT if table.first_attempt else Setting.BLUEFLAME
    with_it = merge(logs, other)
    return [_compare(row, without, with_it) for row in table.rows]


def _compare(row: Row, without: Samples, with_it: Samples) -> Compared:
    times, costs = [], []
    for samples in (without, with_it):
        latency, cpu = (part(row.low, row.high) for part in (samples.latency, samples.cpu))
        if latency is None or cpu is None:
            raise ValueError(
                f"no message of {row.low} to {row.high} bytes {samples.setting.value} is in the "
                "logs: add the log of such a sweep"
            )
        times.append(latency)
        costs.append(cpu)
    return Compared(row, times[0], times[1], costs[0], costs[1])


def study_lines(table: Table, model: Model, logs: Sequence[Samples]) -> Iterator[str]:
    """A table of the study; all times are microseconds, modelled ones say so."""
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
    f"{'payload':>8} {'way':>13} {'sends':>6} | {'stores':>6} {'writes':>6} {'entries':>7} "
    f"{'reads':>6} {'CQEs':>5} | {'modelled us':>11} {'CPU us':>7} | {'wall us':>9}"
)


def size_lines(model: Model, logs: Sequence[Samples]) -> Iterator[str]:
    """Counts, modelled and wall time by payload and by the way in which entries came."""
    yield f"mean of each send until its message is there; profile {model.name}"
    yield HEADER
    rows: dict[tuple[int, str], list[Sample]] = {}
    for log in logs:
        for size, samples in log.by_size.items():
            for sample in samples:
                rows.setdefault((size, sample.way.value), []).append(sample)
    for (size, way), samples in sorted(rows.items()):
        yield _size_line(size, way, samples)
    yield "stores: BlueFlame store operations; writes: in writes of 64 bytes; entries: fetched ones"


def _size_line(size: int, way: str, samples: Sequence[Sample]) -> str:
    paths = [sample.path for sample in samples]
    return (
        f"{size:8} {way:>13} {len(samples):6} | "
        f"{mean(path.store for path in paths):6.2f} {mean(path.write for path in paths):6.2f} "
        f"{mean(path.turn for path in paths):7.2f} {mean(path.read for path in paths):6.2f} "
        f"{mean(path.completion for path in paths):5.2f} | "
        f"{mean(each.latency for each in samples):11.3f} "
        f"{mean(each.cpu for each in samples):7.3f} | "
        f"{mean(each.wall for each in samples):9.1f}"
    )
