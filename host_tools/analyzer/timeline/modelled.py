"""Draws work requests in modelled time, as a profile estimates it for hardware.

A work request begins at its wall-clock time; each of its transactions lasts from the modelled end
of its cause to its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from bluebridge.device.buslog.record import host_of
from bluebridge.host_tools.analyzer.activity import Activity
from bluebridge.host_tools.analyzer.analysis.transfer import TimeModel, Transfer, modelled
from bluebridge.host_tools.analyzer.timeline.marks import Mark, Shape, nanoseconds
from bluebridge.host_tools.analyzer.timeline.tracks import Lanes, TrackWriter
from bluebridge.host_tools.analyzer.transaction import Role, Transaction

_PLACES: Final = ("to the adapter", "to the host", "port")
MODEL_PIDS: Final = 100
"""Process number of the first modelled machine."""


class ModelledTime:
    """Draws work requests in processes of their own."""

    def __init__(self, writer: TrackWriter, model: TimeModel) -> None:
        self._writer = writer
        self._model = model
        self._processes: dict[str, int] = {}
        self._lanes: dict[tuple[str, str], Lanes] = {}

    def draw(self, activities: Iterable[Activity]) -> list[Mark]:
        """Return the marks of the work requests among activities, in order of time."""
        found = [each.transfer for each in activities if each.transfer and each.transactions]
        slices = [one for transfer in found for one in self._slices(transfer)]
        slices.sort(key=lambda one: (one[0], one[1]))
        marks: list[Mark] = []
        for begin, end, machine, place, mark in slices:
            track = self._track(machine, place).take(begin, end)
            if track is not None:
                mark.track = track
                marks += (mark, Mark(end, Shape.END, track))
        marks.sort(key=attrgetter("time"))
        return marks

    def _slices(self, transfer: Transfer) -> list[tuple[int, int, str, str, Mark]]:
        """Return begin, end, machine, track and mark of each transaction that the model times."""
        times = self._model.times(transfer)
        whole = modelled(transfer, self._model) or 0.0
        start = nanoseconds(transfer.start)
        found = []
        for one, done in zip(transfer.transactions, times, strict=True):
            if done is None:
                continue
            begun = (times[one.parent] if one.parent is not None else 0.0) or 0.0
            begin = start + round(begun * 1e3)
            end = max(start + round(done * 1e3), begin + 1)
            mark = Mark(begin, Shape.BEGIN, 0, one.role.value, "modelled")
            mark.arguments = [
                ("event", one.number),
                ("modelled_ns", round(done * 1e3)),
                ("request_ns", round(whole * 1e3)),
            ]
            found.append((begin, end, host_of(one.device), _place(one), mark))
        return found

    def _track(self, machine: str, place: str) -> Lanes:
        if machine not in self._processes:
            name = f"machine {machine}, modelled by {self._model.name}"
            pid = MODEL_PIDS + len(self._processes)
            self._processes[machine] = self._writer.process(name, pid)
        key = machine, place
        if key not in self._lanes:
            parent, rank = self._processes[machine], _PLACES.index(place)
            self._lanes[key] = Lanes(lambda: self._writer.track(place, parent, rank))
        return self._lanes[key]


def _place(one: Transaction) -> str:
    if one.role in (Role.REQUEST, Role.RESPONSE):
        return "port"
    return "to the host" if one.upstream else "to the adapter"
