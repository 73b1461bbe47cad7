"""Assembles the events of a log into activities, in one pass and bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bluebridge.device.buslog.activity.activity import Activity
from bluebridge.device.buslog.activity.hca import HcaActivities
from bluebridge.device.buslog.activity.lone import of_transfer
from bluebridge.device.buslog.activity.part import WINDOW
from bluebridge.device.buslog.analysis.assembly import TransferAssembler
from bluebridge.device.buslog.analysis.classify import transaction_of
from bluebridge.device.buslog.analysis.transaction import Role, Transaction
from bluebridge.device.buslog.filter import Filter
from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.layout.buslog import Kind

_LATE = (Role.DOORBELL, Role.BLUEFLAME, Role.ENTRY, Role.NOTE)
"""Roles of what a work request takes that begins later."""


class ActivityAssembler:
    """Takes the events of a log in order and returns activities when they are complete.

    Events have their numbers; an activity is given out when nothing more can belong to it.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        """`devices`: the names in the log's meta file; more may be appended later."""
        self._transfers = TransferAssembler(devices)
        self._held: deque[tuple[Event, Transaction]] = deque()  # work requests may take them yet
        self._hcas = HcaActivities()

    def feed(self, event: Event) -> list[Activity]:
        """The activities that are complete after `event`."""
        one = transaction_of(event)
        given = self._transfers.take(event, one)
        if not one.taken:
            if one.role in _LATE and (event.obj or event.kind is not Kind.NOTE):
                self._held.append((event, one))
            else:
                self._hcas.feed(event, one)
        if self._held:
            self._release(event.number - WINDOW)
        found = self._hcas.ready(event.number)
        return [*map(of_transfer, given), *found] if given else found

    def finish(self) -> list[Activity]:
        """All that are left."""
        rest = [of_transfer(each) for each in self._transfers.finish()]
        self._release(None)
        return [*rest, *self._hcas.finish()]

    def _release(self, before: int | None) -> None:
        """What is held since before that event, except what work requests have taken."""
        held = self._held
        while held and (held[0][1].taken or before is None or held[0][1].number < before):
            event, one = held.popleft()
            if not one.taken:
                self._hcas.late(event, one)


def activities(folder: Path | LogReader, wanted: Filter | None = None) -> Iterator[Activity]:
    """The activities of a log in the order of completion; raises `LogError`.

    Of `wanted`, the times and the first event choose the events that are assembled, the device the
    activities.
    """
    reader = folder if isinstance(folder, LogReader) else LogReader(folder)
    wanted = wanted or Filter()
    assembler = ActivityAssembler(reader.meta["devices"])
    for event in reader.events(replace(wanted, kinds=None, bar=None, device=None)):
        yield from _of(wanted.device, assembler.feed(event))
    yield from _of(wanted.device, assembler.finish())


def _of(device: str | None, found: list[Activity]) -> Iterator[Activity]:
    return (each for each in found if device in (None, each.device))
