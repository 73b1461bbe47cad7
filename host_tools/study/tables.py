"""The sends of logs, and their tables: beside the study's values, or by payload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from statistics import mean

from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.analyzer.analysis import PostedBy, Transfer, transfers
from bluebridge.host_tools.analyzer.model.model import EventCounts, Model

STUDIED = "RDMA_WRITE"
"""Operation of the study's `rdma_lat`; a log also has messages of the programs' TCP."""

Key = tuple[str, int, PostedBy]

READS_45 = ((16, 12.356 - 11.684), (496, 13.468 - 12.836))
"""The two reads of an entry in figure 4.5: bytes, and microseconds to the first completion."""

HEADER = (
    f"{'operation':13} {'payload':>8} {'way':>13} {'sends':>6} | "
    f"{'stores':>6} {'writes':>6} {'entries':>7} {'reads':>6} {'CQEs':>5} | "
    f"{'modelled us':>11} {'CPU us':>7} | {'wall us':>9}"
)

_COSTS = (
    "{operation:13} {size:8} {way:>13} {sends:6} | {stores:6.2f} {writes:6.2f} {entries:7.2f} "
    "{reads:6.2f} {cqes:5.2f} | {modelled_us:11.3f} {cpu_us:7.3f} | {wall_us:9.1f}"
)


class Setting(Enum):
    """The ways in which the studied sends of a log were posted."""

    DOORBELL = "without BlueFlame"
    BLUEFLAME = "with BlueFlame"
    FIRST_ATTEMPT = "with entries in the wrong page"


@dataclass(slots=True)
class SendGroup:
    """Sends of one payload and way: sums in us, modelled in `latency` and `cpu`, real in `wall`."""

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


@dataclass(slots=True)
class Samples:
    """The sends of one log by operation, payload in bytes and `PostedBy`.

    `cut`: the log's last event is incomplete; `dropped`: its oldest events were deleted.
    """

    setting: Setting = Setting.DOORBELL
    groups: dict[Key, SendGroup] = field(default_factory=dict)
    cut: bool = False
    dropped: bool = False


def mean_of(
    logs: Sequence[Samples], setting: Setting, name: str, low: int, high: int
) -> float | None:
    """Return the mean of `latency` or `cpu` over the payloads from `low` to `high`, or None.

    It is that of the studied sends of logs of a setting; a payload counts once, by its mean.
    """
    found: dict[int, list[SendGroup]] = {}
    for samples in logs:
        for (operation, size, _), group in samples.groups.items():
            if samples.setting is setting and operation == STUDIED and low <= size <= high:
                found.setdefault(size, []).append(group)
    means = [
        sum(getattr(each, name) for each in groups) / sum(each.sends for each in groups)
        for groups in found.values()
    ]
    return mean(means) if means else None


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


@dataclass(frozen=True, slots=True)
class StudyRow:
    """Times for `low` to `high` bytes, by doorbell and BlueFlame; `gain` is the unrounded one."""

    low: int
    high: int
    doorbell: float
    blueflame: float
    gain: float
    operations: str = ""

    @property
    def more(self) -> float:
        """Microseconds that sends through BlueFlame take longer than those with doorbells."""
        return self.blueflame - self.doorbell


@dataclass(frozen=True, slots=True)
class StudyTable:
    """A table of the study; `first_attempt`: of the attempt with entries in the wrong page."""

    name: str
    title: str
    profile: str
    rows: tuple[StudyRow, ...]
    first_attempt: bool = False


TABLE_31 = StudyTable(
    "3.1",
    "Table 3.1: System x with and without BlueFlame",
    "system-x",
    (StudyRow(1, 192, 2.06, 1.51, 0.2678), StudyRow(193, 1024, 2.92, 2.92, 0.0)),
)
TABLE_41 = StudyTable(
    "4.1",
    "Table 4.1: System z with and without BlueFlame",
    "system-z",
    (
        StudyRow(1, 28, 4.6, 2.6, 0.43, "64"),
        StudyRow(29, 88, 4.7, 2.9, 0.38, "128"),
        StudyRow(89, 148, 4.9, 3.6, 0.26, "64+128"),
        StudyRow(149, 208, 5.1, 4.0, 0.21, "128+128"),
    ),
)
FIGURE_43 = StudyTable(
    "4.3",
    "Figure 4.3: System z, first attempt; the page's index was not added",
    "system-z",
    # Doorbell times of table 4.1, and 0.5 and 0.7 us more as in section 4.3.1.
    (StudyRow(1, 28, 4.6, 5.1, -0.5 / 4.6, "64"), StudyRow(29, 88, 4.7, 5.4, -0.7 / 4.7, "128")),
    first_attempt=True,
)
TABLES = {table.name: table for table in (TABLE_31, TABLE_41, FIGURE_43)}


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
    """Compare a table with the logs; raises `ValueError` when they lack the sends of a row."""
    other = Setting.FIRST_ATTEMPT if table.first_attempt else Setting.BLUEFLAME
    return [_compare(row, logs, (Setting.DOORBELL, other)) for row in table.rows]


def gaps(table: StudyTable, logs: Sequence[Samples]) -> Iterator[str]:
    """Yield a line for each row whose payloads are in the logs for less than half of its range."""
    for row in table.rows:
        sizes = {
            size
            for samples in logs
            for operation, size, _ in samples.groups
            if operation == STUDIED and row.low <= size <= row.high
        }
        if sizes and 2 * (max(sizes) - min(sizes)) < row.high - row.low:
            there = f"{min(sizes)} to {max(sizes)}" if len(sizes) > 1 else str(*sizes)
            yield f"row of {row.low} to {row.high} bytes: the logs have only {there} bytes of it"


def _compare(row: StudyRow, logs: Sequence[Samples], settings: Sequence[Setting]) -> Compared:
    found: dict[str, list[float]] = {"latency": [], "cpu": []}
    for setting in settings:
        for name, values in found.items():
            value = mean_of(logs, setting, name, row.low, row.high)
            if value is None:
                raise ValueError(
                    f"no RDMA WRITE of {row.low} to {row.high} bytes {setting.value} is in the "
                    "logs: add the log of such a sweep"
                )
            values.append(value)
    return Compared(row, *found["latency"], *found["cpu"])


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
        line = _COSTS.format(operation=operation, size=size, way=way.value, **means(group))
        yield f"{number:3} {line}" if many else line
    yield "stores: BlueFlame store operations; writes: in writes of 64 bytes; entries: fetched ones"


def sorted_groups(logs: Sequence[Samples]) -> list[tuple[int, Key, SendGroup]]:
    """Return the groups of all logs in order, each with the number of its log, from 1."""
    groups = [
        (number, key, group)
        for number, log in enumerate(logs, 1)
        for key, group in log.groups.items()
    ]
    return sorted(groups, key=lambda each: (*each[1][:2], each[1][2].value, each[0]))


def means(group: SendGroup) -> dict[str, float]:
    """Return the values of a row of the table of costs: means over the sends of a group."""
    sends, counts = group.sends, group.counts
    return {
        "sends": sends,
        "stores": counts.store / sends,
        "writes": counts.write / sends,
        "entries": counts.turn / sends,
        "reads": counts.read / sends,
        "cqes": counts.completion / sends,
        "modelled_us": group.latency / sends,
        "cpu_us": group.cpu / sends,
        "wall_us": group.wall / sends,
    }
