"""An agent that is hostile: it costs the host bounded memory and disk, and is told in one line."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bluebridge.guest.agent import PROTOCOL, frames
from bluebridge.guest.agent.frames import FrameReader, Kind, encode, encode_object
from bluebridge.host_tools.agent import Agent, AgentError, AgentLost, AgentRefused, client
from tests.models.agent_port import AgentPort

_MEMORY = 64 << 20
_FLOOD = 160 << 20
"""The bytes that an agent sends which is not stopped."""
HELLO = {"protocol": PROTOCOL, "instance": "x", "channels": []}

Answer = tuple[Kind, dict[str, Any] | bytes]
Script = Callable[[dict[str, Any]], Iterator[Answer]]
"""Answers of the agent to a request."""


class Hostile:
    """A socket at `path` whose agent answers each request as `script` says."""

    def __init__(self, path: Path, script: Script, hello: dict[str, Any] | None = None) -> None:
        self.path = path
        self.sent = 0
        self._script = script
        self._hello = HELLO if hello is None else hello
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError), self._listener.accept()[0] as connection:
            reader = FrameReader()
            while data := connection.recv(65536):
                if reader.session is None:
                    reader.session = data[4:12]
                reader.feed(data)
                while (frame := reader.take()) is not None:
                    if frame.kind == Kind.SYNC:
                        answers: Iterator[Answer] = iter([(Kind.HELLO, self._hello)])
                    elif frame.kind == Kind.OPEN:
                        answers = self._script(json.loads(frame.payload))
                    else:
                        continue
                    for kind, answer in answers:
                        self._send(connection, frame.session, frame.channel, kind, answer)

    def _send(
        self, connection: socket.socket, session: bytes, channel: int, kind: Kind, answer: Any
    ) -> None:
        if isinstance(answer, bytes):
            connection.sendall(encode(session, kind, channel, answer))
            self.sent += len(answer)
        else:
            connection.sendall(encode_object(session, kind, channel, answer))

    def connect(self) -> Agent:
        return Agent.connect("a", [self.path], 20)

    def close(self) -> None:
        self._listener.close()
        self._thread.join()


Make = Callable[..., Hostile]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Hostile] = []

    def hostile(script: Script, hello: dict[str, Any] | None = None) -> Hostile:
        made.append(Hostile(tmp_path / f"agent-{len(made)}", script, hello))
        return made[-1]

    yield hostile
    for each in made:
        each.close()


def flood(size: int = frames.PAYLOAD_BYTES, most: int = _FLOOD) -> Iterator[Answer]:
    """DATA without a look at the window, as pieces of `size` bytes."""
    piece = bytes(size)
    return ((Kind.DATA, piece) for _ in range(most // size))


_CLIENT = """
import sys, time
from pathlib import Path
from bluebridge.host_tools.agent import Agent
from bluebridge.host_tools.errors import LabError

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

with Agent.connect("a", [Path(sys.argv[1])], 20) as agent:
    before = peak()
    try:
        {work}
    except LabError as error:
        print(error)
    print(peak() - before)
"""


PUT = "agent.put(bytes(1 << 20), '/tmp/x')"
SLOW = "agent.start('x').wait(lambda name, data: time.sleep(0.5))"


def _client(work: str, path: Path) -> str:
    """Return the error of a client; its memory must not have grown much."""
    words = [sys.executable, "-c", _CLIENT.format(work=work), str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    said, grown = done.stdout.splitlines()
    assert int(grown) < _MEMORY
    return said


@pytest.mark.parametrize(
    ("work", "piece"), [(PUT, frames.PAYLOAD_BYTES), (PUT, 2), (SLOW, frames.PAYLOAD_BYTES)]
)
def test_a_flood_costs_bounded_memory(make: Make, work: str, piece: int) -> None:
    """Whether the host waits for credit, or its user for a slow reader."""
    agent = make(lambda _: flood(piece))
    assert "sends more than it was allowed to; start the guest anew" in _client(work, agent.path)
    assert agent.sent < _FLOOD


def test_output_without_an_end_costs_bounded_memory(port: AgentPort) -> None:
    said = _client("agent.run('cat /dev/zero')", port.path)
    assert "printed more than 8388608 bytes; send its output to a file" in said
    said = _client("agent.run('head -c 8000000 /dev/urandom; exit 1', check=True)", port.path)
    assert "ended with status 1" in said


def test_a_file_is_as_long_as_announced_or_refused(make: Make, tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()

    def refused(size: int | None, most: int) -> str:
        answers: list[Answer] = [(Kind.SIZE, {"size": size})]
        guest = make(lambda _: itertools.chain(answers, flood(1000, most)))
        with guest.connect() as agent, pytest.raises(AgentError) as caught:
            agent.get("/x", here / "x")
        assert list(here.iterdir()) == []
        return str(caught.value)

    assert re.search(
        r"guest a: /x: more than 9999 bytes arrive, as announced; ", refused(9999, 20_000)
    )
    said = refused(1 << 60, 0)
    assert re.search(rf"/x has {1 << 60} bytes, and \d+ may come here; free space in {here}", said)
    with mock.patch.object(client, "_MOST_UNKNOWN", 5000):
        assert "more than 5000 bytes arrive, its size is not known" in refused(None, 20_000)


def test_what_is_in_memory_is_no_longer_than_it_may(port: AgentPort, tmp_path: Path) -> None:
    (long := tmp_path / "long").touch()
    os.truncate(long, 1 << 30)
    with port.connect() as agent:
        with pytest.raises(AgentError, match=f"{long} has {1 << 30} bytes, and 8388608 may come"):
            agent.read(str(long))
        assert agent.ping()["operations"] == 0


RUN = {"status": 0, "signal": None, "timed_out": False, "seconds": 0.1}
GET = {"size": 0, "checksum": 0, "mode": 0o644}


def _command(agent: Agent) -> object:
    return agent.run("x")


def _read(agent: Agent) -> object:
    return agent.read("/x")


WRONG_RUN: list[dict[str, Any]] = [
    *({"status": value} for value in ("0", None, -1, True)),
    *({"signal": value} for value in (9, "9")),
    {"timed_out": 0},
    *({"seconds": value} for value in (math.nan, None, "1")),
]
WRONG_GET: list[dict[str, Any]] = [{"size": "0"}, {"checksum": {}}, {"mode": None}, {"mode": True}]
NONSENSE: list[tuple[Callable[[Agent], object], Kind, Any]] = [
    *((_command, Kind.DONE, RUN | wrong) for wrong in WRONG_RUN),
    *((_command, Kind.DONE, {n: RUN[n] for n in RUN if n != name}) for name in RUN),
    *((_read, Kind.DONE, GET | wrong) for wrong in WRONG_GET),
    (_read, Kind.SIZE, {"size": "many"}),
    (_read, Kind.SIZE, {}),
    (_read, Kind.DATA, b""),
    (lambda agent: agent.put(b"", "/x"), Kind.DONE, {"path": 7}),
    (Agent.functions, Kind.DONE, {"functions": [7]}),
    (Agent.functions, Kind.DONE, {"functions": [{"address": 1}]}),
    (Agent.functions, Kind.DONE, {"functions": None}),
    (Agent.ping, Kind.DONE, {"version": "1"}),
    (Agent.ping, Kind.DONE, b"[" * 30_000),
    (Agent.ping, Kind.FAIL, {"code": "x"}),
    (Agent.ping, Kind.FAIL, {"message": [], "code": "x"}),
]


@pytest.mark.parametrize(("work", "kind", "answer"), NONSENSE)
def test_a_field_that_is_missing_or_of_another_kind(
    make: Make, work: Callable[[Agent], object], kind: Kind, answer: Any
) -> None:
    with (
        make(lambda _: iter([(kind, answer)])).connect() as agent,
        pytest.raises(
            AgentLost, match=r"guest a: its agent talks nonsense: .*; start the guest anew"
        ),
    ):
        work(agent)


@pytest.mark.parametrize(
    "wrong", [{"channels": 3}, {"channels": ["1"]}, {"instance": None}, {"protocol": "3"}]
)
def test_a_greeting_that_is_none(make: Make, wrong: dict[str, Any]) -> None:
    with pytest.raises(AgentLost, match="nonsense"):
        make(lambda _: iter(()), HELLO | wrong).connect()


def test_a_message_is_one_printable_line(make: Make) -> None:
    message = "\x1b]0;owned\x07\x1b[2J\nbluebridge: all is well \u202e" + 10_000 * "x"
    guest = make(lambda _: iter([(Kind.FAIL, {"code": "x", "message": message})]))
    with guest.connect() as agent, pytest.raises(AgentRefused) as caught:
        agent.run("x")
    assert str(caught.value).isprintable()
    assert r"\x1b]0;owned\x07\x1b[2J\nbluebridge: all is well \u202e" in str(caught.value)
    assert len(str(caught.value)) < 5000
