"""Data, statistics, states and log lines of krping."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bluebridge.guest.protocols.krping.__main__ import exit_status
from bluebridge.guest.protocols.krping.log import Log
from bluebridge.guest.protocols.krping.pattern import ping_data, shown
from bluebridge.guest.protocols.krping.result import Result
from bluebridge.guest.protocols.krping.state import State, after_advertisement, after_go_ahead
from bluebridge.guest.protocols.krping.stats import RESERVOIR, Latencies, Stats


def test_ping_data_of_the_module() -> None:
    """The text krping shows with verbose for the first pings."""
    text = b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs"
    assert ping_data(0, 65) == text + b"\0"
    assert ping_data(1, 24) == b"rdma-ping-1: BCDEFGHIJK\0"
    assert ping_data(58, 16) == b"rdma-ping-58: A\0"
    assert ping_data(57, 16) == b"rdma-ping-57: z\0"
    assert shown(ping_data(3, 1000)) == ping_data(3, 1000)[:64].decode()


@given(st.integers(0, 10**9), st.integers(1, 5000))
def test_ping_data_has_its_size_and_one_nul(ping: int, size: int) -> None:
    """The server writes up to the NUL: there is exactly one, at the end."""
    data = ping_data(ping, size)
    assert len(data) == size and data.index(0) == size - 1


def test_states_are_numbered_as_in_the_modules_log() -> None:
    """`wait for RDMA_READ_ADV state 10` names ERROR."""
    assert [state.name for state in State][5:] == [
        "RDMA_READ_ADV", "RDMA_READ_COMPLETE", "RDMA_WRITE_ADV", "RDMA_WRITE_COMPLETE", "ERROR",
    ]  # fmt: skip
    assert (State.IDLE, State.RDMA_READ_ADV, State.ERROR) == (1, 6, 10)


def test_a_servers_and_a_clients_iteration() -> None:
    """Advertisements and go-aheads move the state on."""
    assert after_advertisement(State.CONNECT_REQUEST) is State.RDMA_READ_ADV
    assert after_advertisement(State.RDMA_READ_COMPLETE) is State.RDMA_WRITE_ADV
    assert after_advertisement(State.CONNECTED) is State.RDMA_READ_ADV
    assert after_go_ahead(State.RDMA_READ_ADV) is State.RDMA_WRITE_ADV
    assert after_go_ahead(State.RDMA_WRITE_ADV) is State.RDMA_WRITE_COMPLETE


def test_nine_columns() -> None:
    """In the order of the README."""
    stats = Stats(1, 2, 3, 4, 5, 6, 7, 8)
    assert stats.line("1-mlx4_0") == "1-mlx4_0 1 2 3 4 5 6 7 8"
    assert list(stats.by_name("x"))[:3] == ["name", "send_bytes", "send_msgs"]


def test_latencies() -> None:
    """Percentiles, and a bound on what is kept."""
    latencies = Latencies()
    assert latencies.summary() is None
    for value in range(1, 101):
        latencies.add(float(value))
    assert latencies.summary() == {"min": 1.0, "p50": 51.0, "p99": 100.0}
    for _ in range(RESERVOIR):
        latencies.add(7.0)
    assert latencies.count == RESERVOIR + 100
    summary = latencies.summary()
    assert summary is not None and (summary["min"], summary["p50"]) == (1.0, 7.0)


def test_exit_status() -> None:
    """An interrupted run is fine only when it was endless or done."""
    done = Result(True, 3, 3, None, {})
    assert exit_status(done) == 0
    assert exit_status(replace(done, cancelled=True)) == 0
    assert exit_status(replace(done, ok=False, error="why")) == 1
    assert exit_status(replace(done, ok=False, error="why", cancelled=True)) == 130


def test_log_lines(tmp_path: Path) -> None:
    """The kernel's style, to the stream and the file alike."""
    stream = io.StringIO()
    log = Log(stream, str(tmp_path / "log"))
    log.note("DISCONNECT EVENT...")
    log.line("recv completion")
    log.close()
    log.line("only to the stream by now")
    lines = stream.getvalue().splitlines()
    assert re.fullmatch(r"\[ *\d+\.\d{6}\] krping: DISCONNECT EVENT\.\.\.", lines[0])
    assert re.fullmatch(r"\[ *\d+\.\d{6}\] recv completion", lines[1])
    assert (tmp_path / "log").read_text().splitlines() == lines[:2]
