"""The picture of `bluebridge watch` in terminals of several heights."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from bluebridge.device.buslog.analysis.live_rates import LiveRates
from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.watch.command import LATEST, picture
from tests.unit.analysis_log import Sender


@pytest.mark.parametrize(("room", "latest"), [(None, LATEST), (60, LATEST), (24, 4), (16, 0)])
def test_as_many_of_the_latest_requests_as_there_is_room(
    tmp_path: Path, room: int | None, latest: int
) -> None:
    sender = Sender(tmp_path)
    for _ in range(20):
        sender.post()
    sender.log.close()
    reader = LogReader(tmp_path)
    live = LiveRates(reader.meta["devices"], LATEST)
    live.add(reader)
    text = io.StringIO()
    console = Console(file=text, width=120)
    console.print(picture(reader, live, live.next_interval(), 1.0, room))
    lines = text.getvalue().splitlines()
    rows = [line for line in lines if " 0x48 " in line]
    assert len(rows) == latest
    assert room is None or len(lines) <= max(room, 19)
    if rows:
        assert rows[-1].split()[3] == "19"
