"""The sentences of steps, and which activities are a driver's routine."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.transaction import Role
from bluebridge.host_tools.web.book import Book, Query
from bluebridge.host_tools.web.rows import CAPTIONS, routine
from tests.models.analysis_log import Sender
from tests.unit.web.web_site import written


def test_every_role_has_a_sentence_or_a_text_of_the_log() -> None:
    told = {Role.OTHER, Role.COMMAND, Role.RESET, Role.NOTE, Role.LINK, Role.CONTROL}
    assert set(CAPTIONS) | told == set(Role)
    assert not set(CAPTIONS) & told


def test_each_step_of_a_work_request_is_told(tmp_path: Path) -> None:
    written(tmp_path / "log", 1).log.close()
    _, activities = Book(tmp_path / "log").whole(0, 3, Query())
    first, second, third = ([step["caption"] for step in each["list"]] for each in activities)
    assert first[0] == "the driver stores 4 bytes in its UAR page: go on from entry 0"
    assert first[2] == "the request leaves for the other HCA, with 8 bytes of data"
    assert first[-1].endswith("the work is done")
    assert "64 bytes of entry 1 itself" in second[0]
    assert [third[9].partition(":")[0], third[10].partition(":")[0]] == [
        "the HCA writes an event entry to memory", "the device interrupts the processor",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "title", "status", "word"),
    [
        (ActivityKind.COMMAND, "DUMP_ETH_STATS in_mod=0x1", "OK", "DUMP_ETH_STATS"),
        (ActivityKind.COMMAND, "DUMP_ETH_STATS in_mod=0x1", "BAD_PARAM", ""),
        (ActivityKind.COMMAND, "RTR2RTS_QP in_mod=0x48", "OK", ""),
        (ActivityKind.CONFIG, "config, 3 reads", "", "config access"),
        (ActivityKind.NOTE, "queue 0x5: 9 pieces of memory; the next", "", "pieces of memory"),
        (ActivityKind.NOTE, "mark: half way", "", ""),
        (ActivityKind.RESET, "device reset", "", ""),
    ],
)
def test_routine_is_what_an_idle_driver_does(
    kind: ActivityKind, title: str, status: str, word: str
) -> None:
    assert routine(Activity(0, kind, "a", title, 0.0, 0.0, status)) == word


def test_each_step_names_the_entry_of_its_queue(tmp_path: Path) -> None:
    """The slot counts from RESET on; the work request's number in the log is another one."""
    sender = Sender(tmp_path / "log")
    sender.index = 12
    sender.post(8)
    sender.log.close()
    _, (activity,) = Book(tmp_path / "log").whole(0, 1, Query())
    assert activity["list"][0]["caption"].endswith("go on from entry 12")
