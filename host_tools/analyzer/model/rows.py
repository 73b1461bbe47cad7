"""The tables of `bluebridge model` as rows for JSON: the same values under stable names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from bluebridge.host_tools.analyzer.model.samples import Samples, SendGroup
from bluebridge.host_tools.analyzer.model.study import StudyTable
from bluebridge.host_tools.analyzer.model.tables import compare, sorted_groups

Row = dict[str, object]


def size_rows(folders: Sequence[Path], logs: Sequence[Samples]) -> Iterator[Row]:
    """A row for each log, operation, payload and way of posting; times in microseconds."""
    for number, (operation, size, way), group in sorted_groups(logs):
        head: Row = {
            "folder": str(folders[number - 1]),
            "operation": operation,
            "payload": size,
            "way": way.value,
        }
        yield head | _means(group)


def _means(group: SendGroup) -> Row:
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


def study_rows(table: StudyTable, logs: Sequence[Samples]) -> Iterator[Row]:
    """A row for each row of a table of the study: `study` has its values, the rest is modelled."""
    for each in compare(table, logs):
        modelled = asdict(each)
        yield {"table": table.title, "study": modelled.pop("row"), **modelled}
