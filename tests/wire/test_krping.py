"""krping between two HCAs: every memory mode, the benchmarks, several threads, what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wire.conftest import StartServer
from tests.wire.krping_pair import CLIENT_IP, SERVER_IP, Run, Side, opened, start, until
from tests.wire.server import ServerProcess

ADDRESS = f"addr={SERVER_IP},port=9999"


@pytest.fixture
def server(start_server: StartServer, tmp_path: Path) -> ServerProcess:
    """The process with both HCAs."""
    sockets = [f"name={name},socket={tmp_path / name}" for name in "ab"]
    return start_server("device", "--hca", sockets[0], "--hca", sockets[1], "--log", str(tmp_path / "log"))


@pytest.fixture
def pair(server: ServerProcess, tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    """Server side and client side."""
    with (
        opened(tmp_path / "a", SERVER_IP, debugging=True) as a,
        opened(tmp_path / "b", CLIENT_IP, debugging=True) as b,
    ):
        yield a, b


def both(pair: tuple[Side, Side], options: str, port: int = 9999) -> tuple[Run, Run]:
    """Start server and client with the same options."""
    address = f"addr={SERVER_IP},port={port}"
    server = start(pair[0], f"server,{address},{options}".rstrip(","))
    return server, start(pair[1], f"client,{address},{options}".rstrip(","))


@pytest.mark.parametrize(
    "options",
    [
        "",
        "size=64",
        "size=1",
        "size=4097",
        "size=1048576",
        "verbose",
        "local_dma_lkey",
        "mem_mode=dma",
        "mem_mode=reg",
        "mem_mode=reg,size=20000",
        "mem_mode=reg,server_inv",
        "mem_mode=reg,read_inv",
        "mem_mode=reg,server_inv,read_inv,local_dma_lkey,size=5000",
    ],
)
def test_every_iteration_is_right(pair: tuple[Side, Side], options: str) -> None:
    """20 validated pings, counted alike on both sides."""
    runs = both(pair, f"count=20,validate,{options}".rstrip(","))
    served, asked = (run.result() for run in runs)
    assert (served.ok, asked.ok) == (True, True), (served.error, asked.error)
    assert served.iterations == asked.iterations == 20
    assert served.validated == asked.validated == 20
    assert asked.us_per_iteration is not None and asked.us_per_iteration["min"] > 0
    assert (asked.stats["send_msgs"], asked.stats["recv_msgs"]) == (40, 40)
    assert (served.stats["read_msgs"], served.stats["write_msgs"]) == (20, 20)
    assert served.stats["read_bytes"] == served.stats["write_bytes"]
    assert served.stats["name"] == "1-mlx4_0" and len(served.stats_line.split()) == 9
