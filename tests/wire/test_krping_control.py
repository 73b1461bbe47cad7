"""The control file in front of real krping threads."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest.krping.control import control_file
from guest.krping.fuse import DEVICE
from tests.wire.conftest import StartServer
from tests.wire.krping_pair import CLIENT_IP, SERVER_IP, Side, opened, until

pytestmark = pytest.mark.skipif(
    not os.access(DEVICE, os.W_OK) or os.geteuid() != 0,
    reason=f"mounting needs root and {DEVICE}; guests have both",
)


@pytest.fixture
def files(start_server: StartServer, tmp_path: Path) -> Iterator[tuple[Side, Path, Path]]:
    """The server side, and a served control file for each side."""
    sockets = [f"name={name},socket={tmp_path / name}" for name in "ab"]
    log = str(tmp_path / "log")
    start_server("device", "--hca", sockets[0], "--hca", sockets[1], "--log", log)
    paths = (tmp_path / "krping-a", tmp_path / "krping-b")
    with (
        opened(tmp_path / "a", SERVER_IP) as a,
        opened(tmp_path / "b", CLIENT_IP) as b,
        control_file(paths[0], a.host) as first,
        control_file(paths[1], b.host) as second,
    ):
        threads = [threading.Thread(target=file.serve, daemon=True) for file in (first, second)]
        for thread in threads:
            thread.start()
        yield a, *paths
        for file, thread in zip((first, second), threads, strict=True):
            file.stop()
            thread.join(5)
    assert not any(path.exists() for path in paths)


def write(command: str, path: Path) -> subprocess.Popen[bytes]:
    """A shell that writes a command."""
    return subprocess.Popen(
        ["sh", "-c", f"exec /bin/echo {command} > {path}"], stderr=subprocess.PIPE
    )


def test_commands_statistics_and_ctrl_c(files: tuple[Side, Path, Path]) -> None:
    """A finite run ends by itself; an endless one is seen in the statistics and interrupted."""
    side, first, second = files
    for options in ("count=5,validate", "mem_mode=reg"):
        address = f"addr={SERVER_IP},port=9999,{options}"
        listening = side.output.listening
        server = write(f"server,{address}", first)
        until(lambda before=listening: side.output.listening > before)  # type: ignore[misc]
        client = write(f"client,{address}", second)
        if "count" not in options:
            until(lambda: b"1-mlx4_0" in subprocess.check_output(["cat", first], timeout=10))
            columns = subprocess.check_output(["cat", second], timeout=10).split()
            assert len(columns) == 9 and columns[0] == b"1-mlx4_0"
            client.send_signal(signal.SIGINT)
            assert client.wait(10) != 0
        else:
            assert client.wait(10) == 0
        assert server.wait(10) == 0


def test_wrong_commands_leave_a_line(files: tuple[Side, Path, Path]) -> None:
    """EINVAL for the writer, the reason in the log."""
    side, first, _ = files
    writer = write("server,port=1,fast", first)
    assert writer.wait(10) != 0
    assert writer.stderr is not None and b"Invalid argument" in writer.stderr.read()
    assert "krping: proc write |server,port=1,fast|" in side.text
    assert "krping: unknown option fast" in side.text
