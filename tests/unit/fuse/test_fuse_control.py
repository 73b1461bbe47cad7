"""The control file, spoken to in the kernel's protocol, with commands that only wait.

The VM tests have the kernel itself in front of it.
"""

from __future__ import annotations

import errno
import stat
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from bluebridge.guest.fuse import messages as wire
from bluebridge.guest.fuse.connection import ROOT as ROOT_NODE
from bluebridge.guest.fuse.messages import Opcode
from tests.models.fuse_peer import NAME, Kernel, connected
from tests.models.until import until


class Waiting:
    """Commands that end when told: `wait` on cancel, `ok` at once, `bad` with EINVAL."""

    def __init__(self) -> None:
        self.running: list[str] = []

    def read(self) -> str:
        """One line for each that runs."""
        return "".join(f"{name}\n" for name in self.running)

    def write(self, command: str, running: Callable[[Callable[[], None]], None]) -> int:
        name = command.strip()
        if name == "bad":
            return errno.EINVAL
        if name == "ok":
            return 0
        ended = threading.Event()
        running(ended.set)
        self.running.append(name)
        cancelled = ended.wait(20)
        self.running.remove(name)
        return errno.EINTR if cancelled else errno.ETIMEDOUT


Control = tuple[Kernel, Waiting]


@pytest.fixture
def control() -> Iterator[Control]:
    commands = Waiting()
    with connected(commands) as kernel:
        yield kernel, commands


def test_the_introduction(control: Control) -> None:
    """The older of both versions is spoken; writes come whole."""
    major, minor, *_ = wire.INIT_OUT.unpack(control[0].init)
    assert (major, minor) == (7, 31)
    old = wire.INIT_IN.pack(6, 0, 0, 0)
    with pytest.raises(OSError, match="Protocol error"):
        control[0].ask(Opcode.INIT, 0, old)


def test_writers_get_the_outcome(control: Control) -> None:
    """The length, or an errno that the program shows."""
    kernel, _ = control
    assert kernel.write("ok") == len("ok\n")
    with pytest.raises(OSError, match="nvalid argument"):
        kernel.write("bad")


def test_readers_see_what_runs_and_ctrl_c_ends_one(control: Control) -> None:
    """Two writers at once; interrupting one leaves the other."""
    kernel, commands = control
    first, second = kernel.begin_write("one"), kernel.begin_write("two")
    until(lambda: len(commands.running) == 2)
    assert sorted(kernel.read(NAME).split()) == ["one", "two"]
    kernel.interrupt(first)
    with pytest.raises(InterruptedError):
        first.wait()
    assert commands.running == ["two"]
    assert not second.answered.is_set()
    kernel.interrupt(second)
    with pytest.raises(InterruptedError):
        second.wait()
    assert not commands.running


def test_an_interrupt_that_comes_late_or_for_nobody(control: Control) -> None:
    """It hurts no other writer."""
    kernel, commands = control
    done, running = kernel.begin_write("ok"), kernel.begin_write("one")
    done.wait()
    kernel.interrupt(done)
    until(lambda: commands.running == ["one"])
    kernel.interrupt(done)
    assert kernel.read(NAME) == "one\n"
    assert not running.answered.is_set()
    kernel.interrupt(running)
    with pytest.raises(InterruptedError):
        running.wait()


def test_a_reader_in_pieces_sees_whole_lines(control: Control) -> None:
    """The running requests are looked at once, when the reading begins."""
    kernel, commands = control
    commands.running = [f"thread {number}" for number in range(9)]
    assert kernel.read(NAME, piece=7) == commands.read()
    commands.running = []
    assert kernel.read(NAME) == ""


def test_what_is_and_is_not_there(control: Control) -> None:
    """One regular file that cannot be removed or joined by another."""
    kernel, _ = control
    assert stat.S_ISREG(kernel.mode(NAME))
    assert stat.S_ISDIR(kernel.mode(""))
    assert kernel.names("") == [NAME]
    with pytest.raises(FileNotFoundError):
        kernel.lookup("other")
    unlink, create = 10, 35
    for opcode, body in (
        (unlink, NAME.encode() + b"\0"),
        (create, struct.pack("=IIII", 0, 0o644, 0, 0) + b"other\0"),
    ):
        with pytest.raises(OSError, match="not implemented"):
            kernel.ask(opcode, ROOT_NODE, body)


def test_each_look_up_is_an_inode_of_its_own(control: Control) -> None:
    """The kernel locks an inode for as long as a write to it takes."""
    kernel, _ = control
    assert len({kernel.lookup(NAME) for _ in range(5)}) == 5


def test_closing_ends_what_runs() -> None:
    """A daemon that is told to stop leaves no blocked writer behind."""
    commands = Waiting()
    with connected(commands) as kernel:
        writers = [kernel.begin_write(name) for name in ("one", "two")]
        until(lambda: len(commands.running) == 2)
    for writer in writers:
        with pytest.raises(InterruptedError):
            writer.wait()
    assert not commands.running
