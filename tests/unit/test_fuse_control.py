"""The control file on the kernel's real FUSE, with commands that only wait."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guest.krping.fuse import DEVICE, ControlFile

pytestmark = pytest.mark.skipif(
    not os.access(DEVICE, os.W_OK) or os.geteuid() != 0,
    reason=f"mounting needs root and {DEVICE}; guests have both",
)


class Waiting:
    """Commands that end when told: `wait` on cancel, `ok` at once, `bad` with EINVAL."""

    def __init__(self) -> None:
        self.running: list[str] = []

    def read(self) -> str:
        """One line for each that runs."""
        return "".join(f"{name}\n" for name in self.running)

    def write(self, command: str, running: Callable[[Callable[[], None]], None]) -> int:
        """Run one."""
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


@pytest.fixture
def control(tmp_path: Path) -> Iterator[tuple[Path, Waiting]]:
    """A served file and what stands behind it."""
    directory = tmp_path / "mounted"
    directory.mkdir()
    commands = Waiting()
    file = ControlFile(directory, "control", commands)
    server = threading.Thread(target=file.serve, daemon=True)
    server.start()
    yield directory / "control", commands
    closer = threading.Thread(target=file.close)
    file.stop()
    server.join(5)
    closer.start()
    closer.join(5)
    assert not server.is_alive() and not closer.is_alive()
    assert not os.path.ismount(directory)


def shell(command: str) -> subprocess.Popen[bytes]:
    """A process of its own: this one must not wait for its own file system."""
    return subprocess.Popen(["sh", "-c", command], stderr=subprocess.PIPE)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_writers_get_the_outcome(control: tuple[Path, Waiting]) -> None:
    """The length, or an errno that the program shows."""
    path, _ = control
    assert shell(f"echo ok > {path}").wait(10) == 0
    bad = shell(f"/bin/echo bad > {path}")
    assert bad.wait(10) != 0
    assert bad.stderr is not None and b"nvalid argument" in bad.stderr.read()


def test_readers_see_what_runs_and_ctrl_c_ends_one(control: tuple[Path, Waiting]) -> None:
    """Two writers at once; interrupting one leaves the other."""
    path, commands = control
    first, second = shell(f"exec /bin/echo one > {path}"), shell(f"exec /bin/echo two >> {path}")
    until(lambda: len(commands.running) == 2)
    listed = subprocess.run(["cat", str(path)], capture_output=True, timeout=10, check=True)
    assert sorted(listed.stdout.decode().split()) == ["one", "two"]
    first.send_signal(signal.SIGINT)
    assert first.wait(10) != 0
    until(lambda: commands.running == ["two"])
    second.send_signal(signal.SIGTERM)
    second.wait(10)
    until(lambda: not commands.running)


def test_what_is_and_is_not_there(control: tuple[Path, Waiting]) -> None:
    """One regular file that cannot be removed or joined by another."""
    path, _ = control
    script = (
        f"cd {path.parent}; test -f control && test ! -e other && ls | grep -qx control "
        "&& ! rm control 2>/dev/null && ! touch other 2>/dev/null"
    )
    assert shell(script).wait(10) == 0


def test_closing_ends_what_runs(tmp_path: Path) -> None:
    """A daemon that is told to stop leaves no blocked writer behind."""
    commands = Waiting()
    file = ControlFile(tmp_path, "control", commands)
    server = threading.Thread(target=file.serve, daemon=True)
    server.start()
    writer = shell(f"echo wait > {tmp_path}/control")
    until(lambda: bool(commands.running))
    file.stop()
    server.join(5)
    file.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        assert writer.wait(5) != 0
    assert not os.path.ismount(tmp_path)
