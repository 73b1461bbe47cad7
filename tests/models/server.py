"""A vfio-user server as a process of its own, for tests that try to break it."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bluebridge.host_tools.vfio_user.client import Client

ROOT = Path(__file__).resolve().parents[2]

LONG_WAIT = 500
"""Milliseconds from which on a call that waited is a fault on a busy machine too."""


class ServerProcess:
    """`python -m MODULE ARGUMENTS`, started in the folder `cwd` and past its line `ready`.

    Standard error goes to `log`. Raises AssertionError with that text when the server does not
    get ready within `timeout` seconds.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        log: Path,
        timeout: float = 100.0,
        cwd: Path = ROOT,
    ) -> None:
        self.log = log
        self.killed = False
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=cwd,
                env={"PYTHONPATH": str(ROOT), **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        killer = threading.Timer(timeout, self.process.kill)
        killer.start()
        try:
            assert self.process.stdout is not None
            first = self.process.stdout.readline()
        finally:
            killer.cancel()
        if first.strip() != "ready":
            self.kill()
            raise AssertionError(f"{module} said {first!r}, not ready:\n{self.text()}")

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self.process.pid

    def text(self) -> str:
        """Return what it has written to standard error so far."""
        return self.log.read_text(errors="replace")

    def held(self) -> list[str]:
        """The lines about calls that held its loop too long."""
        return [line for line in self.text().splitlines() if "a call held the loop" in line]

    def stalls(self) -> list[str]:
        """The same without short waits, which a busy machine causes as well."""
        waited = re.compile(r"for (\d+) ms and waited")
        found = [(waited.search(line), line) for line in self.held()]
        return [line for wait, line in found if wait is None or int(wait[1]) >= LONG_WAIT]

    def running(self) -> bool:
        """Whether it has not ended, by itself or by a signal."""
        return self.process.poll() is None

    def open_files(self) -> int:
        """How many descriptors it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def has_open(self, files: int, timeout: float = 10.0) -> bool:
        """Whether no more descriptors are open, soon: those of strange files close in threads.

        Fewer may be: a client before the count was perhaps not gone yet.
        """
        deadline = time.monotonic() + timeout
        while self.open_files() > files:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def cpu_seconds(self) -> float:
        """Processor time it has used, to 10 ms."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wakes(self) -> int:
        """How often its threads have waited for something and been woken."""
        word = "\nvoluntary_ctxt_switches:"
        texts = [path.read_text() for path in Path(f"/proc/{self.pid}/task").glob("*/status")]
        return sum(int(text.partition(word)[2].split()[0]) for text in texts)

    def terminate(self, timeout: float = 10.0) -> int:
        """SIGTERM; the exit status. Killed and TimeoutExpired raised when it does not obey."""
        self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self.killed = True
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def serving(module: str, arguments: Sequence[str], log: Path) -> Iterator[ServerProcess]:
    """A server that many tests share: at the end it must still run, and obey SIGTERM.

    And nothing must have held its loop.
    """
    server = ServerProcess(module, arguments, log)
    try:
        yield server
        assert server.running(), server.text()
        assert server.terminate() == 0, server.text()
        assert server.stalls() == [], server.stalls()
    finally:
        server.kill()


def functions(folder: Path, *kinds: str, names: Iterable[str] = "ab") -> list[str]:
    """Words for the device server: functions of these kinds (hca without any), sockets in `folder`.

    A socket is called as its function, `a`; those of a second kind or third have its name as well,
    `dma-a`.
    """
    first, *others = kinds or ("hca",)
    words = []
    for name in names:
        words += [f"--{first}", f"name={name},socket={folder / name}"]
        for kind in others:
            words += [f"--{kind}", f"name={name},socket={folder / f'{kind}-{name}'}"]
    return words


@contextmanager
def devices(
    folder: Path, *words: str, kinds: Sequence[str] = (), names: Iterable[str] = "ab"
) -> Iterator[ServerProcess]:
    """The device server with such functions; its bus log and control socket are in the folder.

    Nothing may have raised in it at the end, and nothing is held for a client that has left.
    """
    places = ("--log", str(folder / "log"), "--control", str(folder / "control"))
    all_words = [*functions(folder, *kinds, names=names), *places, *words]
    with serving("bluebridge.device", all_words, folder / "server.log") as server:
        yield server
    assert "Traceback" not in server.text(), server.text()
    assert "still held" not in server.text(), server.text()


def is_dropped(client: Client) -> bool:
    """Whether the server has hung up, as it must when the stream makes no sense any more."""
    try:
        client.receive()
    except ConnectionError:
        return True
    return False


def next_client(path: Path) -> Client:
    """Connect as soon as the client before is known to have left.

    One that sent its own socket has left once the server's threads have closed that, too.
    """
    while True:
        try:
            return Client(path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
