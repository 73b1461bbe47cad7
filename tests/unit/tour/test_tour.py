"""The tour's steps against logs, and the page that is made from them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.tour.steps import STEPS, Sight, page
from bluebridge.host_tools.tour.tour_command import seen
from tests.models.analysis_log import posted
from tests.models.house import HOME


@pytest.fixture
def events(tmp_path: Path) -> list[Event]:
    """One RDMA WRITE of guest a with an event entry and an interrupt."""
    return list(LogReader(posted(tmp_path / "log", inline=False, announced=True)))


def _turned(sights: tuple[Sight, ...]) -> list[Sight]:
    """The sights of the other direction: in the tour guest b sends, in the log of a test a."""
    return [dataclasses.replace(each, guest="ba"["ab".index(each.guest)]) for each in sights]


def test_a_write_is_what_its_step_says(events: list[Event]) -> None:
    step = next(each for each in STEPS if each.title == "One RDMA WRITE")
    found = seen(_turned(step.sights), events)
    assert [sight for sight, _ in found] == _turned(step.sights)
    numbers = [event.number for _, event in found]
    assert numbers == sorted(set(numbers))


def test_a_sight_that_is_missing_or_comes_too_early_is_noticed(events: list[Event]) -> None:
    step = next(each for each in STEPS if each.title == "One RDMA WRITE")
    sights = _turned(step.sights)
    assert len(seen([sights[-1], sights[0]], events)) == 1
    refused = Sight("b", Kind.WIRE, ("NAK_REMOTE_ACCESS",), "")
    assert seen([*sights, refused], events) == seen(sights, events)
    assert seen([dataclasses.replace(sights[0], guest="b")], events) == []


def test_a_wrong_key_has_to_leave_memory_alone() -> None:
    (step,) = (each for each in STEPS if each.program == "key")
    assert step.never is not None
    assert (step.never.guest, step.never.kind, step.status) == (
        "a", Kind.DMA_WRITE, "REM_ACCESS_ERR"
    )  # fmt: skip


def test_the_tutorial_is_made_from_the_steps() -> None:
    """`python -m bluebridge.host_tools.tour.steps > docs/tour.md` writes it anew."""
    assert (HOME / "docs" / "tour.md").read_text() == page()
    assert all(f". {step.title}\n" in page() for step in STEPS)
