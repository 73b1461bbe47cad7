"""The control file in front of real krping threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bluebridge.guest.protocols.krping.control import KrpingCommands
from tests.models.fuse_peer import Kernel, connected
from tests.models.verbs.krping_pair import SERVER_IP, Side, until

ADDRESS = f"addr={SERVER_IP},port=9999"
Files = tuple[Side, Kernel, Kernel]


@pytest.fixture
def files(sides: tuple[Side, Side]) -> Iterator[Files]:
    """The server side, and the kernel in front of a control file for each side."""
    a, b = sides
    with connected(KrpingCommands(a.host)) as first, connected(KrpingCommands(b.host)) as second:
        yield a, first, second


def reads(kernel: Kernel) -> int:
    """RDMA READs of the one thread: the last of the nine columns."""
    columns = kernel.read().split()
    return int(columns[8]) if len(columns) == 9 and columns[0] == "1-mlx4_0" else 0


def test_commands_statistics_and_ctrl_c(files: Files) -> None:
    """A finite run ends by itself; an endless one is seen in the statistics and interrupted."""
    side, first, second = files
    for options in ("count=5,validate", "mem_mode=reg"):
        listening = side.output.listening
        server = first.begin_write(f"server,{ADDRESS},{options}")
        until(lambda before=listening: side.output.listening > before)  # type: ignore[misc]
        client = second.begin_write(f"client,{ADDRESS},{options}")
        if "count" not in options:
            until(lambda: reads(first) > 5)
            columns = second.read().split()
            assert len(columns) == 9 and columns[0] == "1-mlx4_0"
            second.interrupt(client)
            with pytest.raises(InterruptedError):
                client.wait()
        else:
            client.wait()
        server.wait()
    assert first.read() == second.read() == ""


def test_a_client_that_fails_is_told(files: Files) -> None:
    """Nobody listens: EIO."""
    _, _, second = files
    with pytest.raises(OSError, match="Input/output error"):
        second.write(f"client,{ADDRESS},count=1")


def test_wrong_commands_leave_a_line(files: Files) -> None:
    """EINVAL for the writer, the reason in the log."""
    side, first, _ = files
    with pytest.raises(OSError, match="Invalid argument"):
        first.write("server,port=1,fast")
    assert "krping: proc write |server,port=1,fast|" in side.text
    assert "krping: unknown option fast" in side.text
