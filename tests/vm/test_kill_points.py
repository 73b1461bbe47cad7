"""Whatever is killed, and whenever: nothing of the pair is left, and the next `up` works.

Each point has a name: what is killed, and when. During a start the moment is a line of
`up --verbose`; later it is something a user does meanwhile.

The points are a chain, in which no `up` is wasted: the pair that shows that a start may be killed
is the one whose process is killed next, and the start that is killed after that shows that this
did no harm, either.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.models.lab_commands import PATIENCE, Commands, alive

SERVER = "server,addr=192.168.69.127,port=9999"
CLIENT = "client,addr=192.168.69.127,port=9999"
KRPING = "python3 -m bluebridge.guest.protocols.krping --ip"
VICTIMS = {"server": "device server", "a": "guest a", "b": "guest b", "keeper": "keeper"}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    """The points' registry; after the last point a pair comes up once more."""
    commands = Commands(tmp_path_factory.mktemp("chain"))
    chain = Chain(commands)
    yield chain
    chain.up()
    commands.close()


class Start:
    """A `bluebridge up --verbose` that is under way."""

    def __init__(self, bluebridge: Commands, *words: str) -> None:
        self.process = bluebridge.start("up", "--verbose", *words)
        self.pids = {"up": self.process.pid}
        self.said = ""

    def read_until(self, moment: str) -> None:
        """Wait for a line that has `moment`, noting the processes named on the way."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            text = line.decode()
            self.said += text
            if match := re.search(r"(keeper|device server|guest \w+): .*process (\d+)", text):
                self.pids[match[1].removeprefix("guest ").removeprefix("device ")] = int(match[2])
            if moment in text:
                return
        raise AssertionError(f"no {moment!r} in: {self.said}")

    def end(self) -> str:
        """Wait for its end; returns its last line."""
        assert self.process.stderr is not None
        self.said += self.process.stderr.read().decode()
        self.process.communicate(timeout=PATIENCE)
        return self.said.strip().splitlines()[-1]


class Chain:
    """The shared state of the points: a registry, and the pair that one leaves to the next."""

    def __init__(self, bluebridge: Commands) -> None:
        self.bluebridge = bluebridge
        self._pids: dict[str, int] | None = None

    def up(self) -> dict[str, int]:
        """Processes of a pair in good order: the one that was left, or a new one."""
        if self._pids is None:
            self.clear()
            start = Start(self.bluebridge)
            start.read_until("are up")
            start.end()
            assert start.process.returncode == 0, start.said
            del start.pids["up"]
            for name in "ab":
                said = self.bluebridge.good("run", name, "lspci -nd 15b3:")
                assert said.count("15b3:1003") == 1
            self._pids = start.pids
        return self._pids

    def take(self) -> dict[str, int]:
        """Such a pair, of which a process will be killed."""
        pids = self.up()
        self._pids = None
        return pids

    def clear(self) -> None:
        """Nothing is up from now on."""
        self._pids = None
        if self.bluebridge.processes():
            self.bluebridge.good("down")
            self.bluebridge.wait_until_nothing_is_left()


STARTS = [
    ("server", "device server: started"),
    ("server", "guest b: QEMU started"),
    ("server", "guest a: loading the snapshot"),
    ("server", "guest b: its agent answers"),
    ("server", "device server: ready"),
    ("server", "guest a: plugging in its device"),
    ("server", "guest a: lists its device"),
    ("a", "guest a: QEMU started"),
    ("a", "guest a: loading the snapshot"),
    ("a", "guest a: runs"),
    ("a", "guest a: its agent answers"),
    ("a", "guest a: plugging in its device"),
    ("a", "guest a: lists its device"),
    ("b", "guest b: QEMU started"),
    ("b", "guest b: loading the snapshot"),
    ("b", "guest a: has a name and randomness of its own"),
    ("b", "guest a: vfio-pci has its device"),
    ("keeper", "keeper: started"),
    ("keeper", "guest a: QEMU started"),
    ("keeper", "guest a: plugging in its device"),
    ("up", "guest a: QEMU started"),
    ("up", "guest a: plugging in its device"),
]
COLD_STARTS = [("server", "guest a: booting"), ("b", "guest b: booting")]


DURING_UP: dict[str, tuple[str, str, tuple[str, ...]]] = {
    f"{victim} at {moment!r}": (victim, moment, words)
    for starts, words in ((STARTS, ()), (COLD_STARTS, ("--cold",)))
    for victim, moment in starts
}


def _kill_during_up(chain: Chain, victim: str, moment: str, words: tuple[str, ...]) -> None:
    bluebridge = chain.bluebridge
    chain.clear()
    start = Start(bluebridge, *words)
    start.read_until(moment)
    os.kill(start.pids[victim], signal.SIGKILL)
    last = start.end()
    if start.process.returncode == 0:  # it was ready in that moment, and noticed afterwards
        bluebridge.wait_until_nothing_is_left()
        last = bluebridge.bad("run", "a", "true")[1]
    elif victim != "up":
        assert start.process.returncode == 1
    if victim != "up":
        assert last.startswith("bluebridge: ")
        assert VICTIMS[victim] in last, start.said
        assert "Traceback" not in start.said
    _nothing_is_left(bluebridge, start.pids)
    chain.up()


def _nothing_is_left(bluebridge: Commands, pids: dict[str, int]) -> None:
    bluebridge.wait_until_nothing_is_left()
    bluebridge.wait(lambda: not any(alive(pid) for pid in pids.values()))


@dataclass(frozen=True)
class Busy:
    """Something that goes on while a process is killed."""

    command: tuple[str, ...]
    """A `bluebridge` command; none for an idle pair."""
    sign: str = ""
    """The line of its output that says that it is under way."""
    until: str = ""
    """A shell line for guest a that ends once it is under way."""


IDLE = Busy(())
RUN = Busy(("run", "a", "echo here; sleep 1000"), "here")
COPY_IN = Busy(("cp", "BIG", "a:/tmp/big"), until='until [ "$(ls -A /tmp)" ]; do sleep 0.1; done')
COPY_OUT = Busy(("run", "b", "cat /dev/zero"), "\0")
TRAFFIC = Busy(("run", "b", f"{KRPING} 192.168.69.128 {CLIENT},verbose"), "ping data")
RESTART = Busy(("restart", "a"), "restoring the guest")
LATER: dict[str, tuple[str, Busy]] = {
    "server of an idle pair": ("server", IDLE),
    "guest a of an idle pair": ("a", IDLE),
    "keeper of an idle pair": ("keeper", IDLE),
    "server while a command runs": ("server", RUN),
    "guest a while a command runs in it": ("a", RUN),
    "guest b while a command runs in guest a": ("b", RUN),
    "guest a while a file is copied to it": ("a", COPY_IN),
    "guest b while output streams from it": ("b", COPY_OUT),
    "server in the middle of krping": ("server", TRAFFIC),
    "guest a in the middle of krping": ("a", TRAFFIC),
    "guest b in the middle of krping": ("b", TRAFFIC),
    "keeper in the middle of krping": ("keeper", TRAFFIC),
    "server while guest a restarts": ("server", RESTART),
    "guest b while guest a restarts": ("b", RESTART),
    "keeper while guest a restarts": ("keeper", RESTART),
}


def _kill_later(chain: Chain, folder: Path, victim: str, busy: Busy) -> None:
    bluebridge = chain.bluebridge
    pids = chain.take()
    others = []
    if busy is TRAFFIC:
        others.append(bluebridge.start("run", "a", f"{KRPING} 192.168.69.127 {SERVER}"))
        _read_until(others[0], "rdma_listen")
    if busy.command:
        others.append(_begin(bluebridge, busy, folder))
    if busy.sign:
        _read_until(others[-1], busy.sign)
    if busy.until:
        bluebridge.good("run", "a", busy.until)
    os.kill(pids[victim], signal.SIGKILL)
    for other in others:
        _, errors = other.communicate(timeout=PATIENCE)
        if busy is RESTART and other.returncode == 0:
            continue  # it was through in that moment
        assert other.returncode not in (0, 2)
        assert errors.decode().strip().splitlines()[-1].startswith("bluebridge: ")
        assert b"bluebridge/host_tools" not in errors  # the guest's krping may have one
    _nothing_is_left(bluebridge, pids)
    status, line = bluebridge.bad("run", "a", "true")
    assert status == 125 and VICTIMS[victim] in line


# Those not marked `long`: each kind of process during its start, some while work goes on.
# test_up.py ends each process of a pair in which a command runs.
QUICK = frozenset(
    (
        "server at 'guest a: plugging in its device'",
        "a at 'guest a: runs'",
        "keeper at 'guest a: QEMU started'",
        "up at 'guest a: plugging in its device'",
        "server at 'guest a: booting'",
        "server of an idle pair",
        "guest a while a file is copied to it",
        "server in the middle of krping",
        "keeper in the middle of krping",
        "guest b while guest a restarts",
    )
)


def _alternating(quick: bool) -> list[str]:
    """Points during `up` and later ones in turn: a later one uses the pair of the one before."""
    starts, later = (
        [point for point in points if (point in QUICK) == quick] for points in (DURING_UP, LATER)
    )
    return [point for two in zip_longest(starts, later) for point in two if point is not None]


POINTS = [
    *_alternating(quick=True),
    *(pytest.param(point, marks=pytest.mark.long) for point in _alternating(quick=False)),
]


@pytest.mark.parametrize("point", POINTS)
def test_killed(chain: Chain, tmp_path: Path, point: str) -> None:
    if point in DURING_UP:
        _kill_during_up(chain, *DURING_UP[point])
    else:
        _kill_later(chain, tmp_path, *LATER[point])


def test_a_killed_server_is_the_end_of_its_pair_only(bluebridge: Commands) -> None:
    start = Start(bluebridge, "--pairs", "2")
    start.end()
    pairs = {pair["number"]: pair for pair in bluebridge.ps()["pairs"]}
    os.kill(pairs[2]["server"], signal.SIGKILL)
    bluebridge.wait(lambda: [pair["number"] for pair in bluebridge.ps()["pairs"]] == [1])
    assert bluebridge.good("run", "b", "hostname") == "b\n"
    assert "the device server" in bluebridge.bad("run", "a2", "true")[1]


def test_down_that_is_killed_is_finished_by_the_next(bluebridge: Commands) -> None:
    bluebridge.good("up", "--quiet")
    down = bluebridge.start("down")
    os.kill(down.pid, signal.SIGKILL)
    down.communicate(timeout=PATIENCE)
    bluebridge.good("down")
    bluebridge.wait_until_nothing_is_left()


def test_there_are_thirty_points() -> None:
    assert len(POINTS) == len(DURING_UP) + len(LATER) >= 30
    assert {*DURING_UP, *LATER} > QUICK


def _begin(bluebridge: Commands, busy: Busy, folder: Path) -> subprocess.Popen[bytes]:
    big = folder / "big"
    with big.open("wb") as stream:
        stream.truncate(1 << 30)
    return bluebridge.start(*(str(big) if word == "BIG" else word for word in busy.command))


def _read_until(process: subprocess.Popen[bytes], sign: str) -> None:
    """Read both streams until one of them has shown `sign`."""
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        seen = b""
        while sign.encode() not in seen:
            for key, _ in selector.select():
                data = os.read(key.fd, 4096)
                assert data, seen
                seen += data
