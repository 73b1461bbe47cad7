"""docs/hostile_peer.py: each broken rule, and what the kernel's RTRS server makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.lab_commands import PATIENCE, ROOT, Commands

pytestmark = pytest.mark.long
PROGRAM = "/tmp/hostile_peer.py"
OVERFLOW = "strlen: detected buffer overflow: 256 byte read of buffer size 255"
"""Why the kernel ends itself."""
WITHOUT_DATA = "BUG: kernel NULL pointer dereference, address: 000000000000000c"
FATAL = {
    "open": ("RNBD OPEN 'n{250}", OVERFLOW, "rnbd_srv_rdma_ev"),
    "name": ("RTRS INFO_REQ session='n{250}", OVERFLOW, "rtrs_srv_info_req_done"),
    "io 99 0": ("RNBD IO 0x63 .*bytes=4096", WITHOUT_DATA, "brd_submit_bio"),
    "io 0 0": ("RNBD IO READ .*bytes=4096", WITHOUT_DATA, "brd_submit_bio"),
}
"""By the program's words: the message in the log, the kernel's reason, a function of its stack."""


@pytest.fixture(scope="module")
def bluebridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """The pair of docs/hostile-peer.md; `down` leaves nothing behind."""
    commands = Commands(tmp_path_factory.mktemp("hostile"))
    commands.good("up", "--rtrs", "python:kernel", "--capture", "512", "--quiet")
    commands.good("cp", str(ROOT / "docs/hostile_peer.py"), "a:/tmp/")
    yield commands
    commands.close()


def _console(commands: Commands) -> str:
    return Path(commands.guest("b")["transcript"]).read_text(errors="replace")


@pytest.mark.parametrize("words", FATAL)
def test_a_message_ends_the_servers_kernel_until_the_guest_is_restarted(
    bluebridge: Commands, words: str
) -> None:
    message, reason, function = FATAL[words]
    bluebridge.good("run", "b", "dmesg -n 8")
    before = len(_console(bluebridge))
    with bluebridge.start("run", "a", "python3", PROGRAM, *words.split()) as program:
        # It waits for an answer, which a server that lives would give.
        bluebridge.wait(lambda: program.poll() is not None or bluebridge.guest("b")["why"])
        assert re.search("panicked|Oops|BUG", bluebridge.guest("b")["why"])
        assert bluebridge.good("restart", "b", "--quiet") == "guest b is up again\n"
        # It would wait until its connection has timed out.
        program.terminate()
        program.communicate(timeout=PATIENCE)
    said = _console(bluebridge)[before:]
    assert reason in said and function in said.partition(reason)[2]
    assert "Kernel panic - not syncing: Fatal exception" in said
    events = bluebridge.good("log", "--decode", "--kind", "wire", "--device", "a")
    assert re.search(message, events)


def test_an_operation_that_there_is_not_with_room_for_data_is_a_read(bluebridge: Commands) -> None:
    """As one that there is, which is done again after it, without a warning."""
    bluebridge.good("run", "b", "dmesg -n 8")
    before = len(_console(bluebridge))
    for operation in ("99", "0"):
        said = bluebridge.good("run", "a", "python3", PROGRAM, "io", operation, "4096")
        assert re.findall(r"errno=\d+", said)[-3:] == ["errno=0"] * 3
        assert _console(bluebridge)[before:].count("Unknown RNBD type: 99 (flags 99)") == 2
