"""The picture of `bluebridge watch` in terminals of several heights."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.analyzer.analysis.live_rates import LiveRates
from bluebridge.host_tools.watch.watch_command import LATEST, picture
from tests.models.analysis_log import Sender


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


def test_an_hca_and_a_bridge_in_eighty_columns(tmp_path: Path) -> None:
    """No number is cut or broken, and a work request's status is in its line."""
    sender = Sender(tmp_path)
    engines = [sender.log.device(name) for name in ("a.ntb4", "b.ntb4", "a.dma", "b.dma")]
    for count, device in enumerate(engines, 1):
        for _ in range(1000 * count):
            sender.log.record(device, Kind.DMA_WRITE, 0, 0x1000, 1 << 20, b"", What.COPY)
    for _ in range(9):
        sender.post(1 << 20, by="doorbell", inline=False)
    sender.log.close()
    reader = LogReader(tmp_path)
    live = LiveRates(reader.meta["devices"], LATEST)
    live.add(reader)
    text = io.StringIO()
    console = Console(file=text, width=80)
    interval = live.next_interval()
    for rate in interval.rates.values():
        rate.count *= 1000
    console.print(picture(reader, live, interval, 1.0, 60, 80))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text.getvalue()
    place = [line.split()[:1] for line in lines].index(["b.dma"])
    assert "4,000,000" in lines[place] and "4.2 GB" in lines[place + 1]
    requests = [line for line in lines if " 0x48 " in line]
    assert len(requests) == LATEST and all(line.endswith(" OK") for line in requests)
    (times,) = [line.split() for line in lines if "doorbell" in line and " 9 " in line]
    assert times[:4] == ["a", "RDMA_WRITE", "doorbell", "9"] and len(times) == 8
