"""Hosts that come, go, lie, and say nothing: the agent serves the next one as if new."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bluebridge.guest.agent import PROTOCOL, frames
from bluebridge.guest.agent.frames import Kind, encode, encode_object
from bluebridge.host_tools.agent import Agent, AgentBusy, AgentError, AgentLost, AgentSilent
from bluebridge.host_tools.agent.connection import AgentConnection
from bluebridge.host_tools.errors import LabError
from tests.models.agent_port import AgentPort, agent_port
from tests.models.until import until


def _works(port: AgentPort) -> None:
    with port.connect() as agent:
        assert agent.run("echo fine", timeout=10).text == "fine"
        assert agent.ping()["operations"] == 0


def test_the_next_host_ends_what_the_last_one_left(port: AgentPort) -> None:
    first = port.connect()
    first.start("exec sleep 300")
    until(lambda: bool(port.children()))
    first.close()
    _works(port)
    until(lambda: not port.children())


def test_a_host_that_vanishes_in_the_middle_of_a_frame(port: AgentPort) -> None:
    session = os.urandom(8)
    whole = encode(session, Kind.DATA, 1, bytes(30_000))
    for cut in (1, 5, 31, 32, 33, 29_000):
        with port.raw() as raw:
            raw.sendall(encode(session, Kind.SYNC, 0))
            _until_hello(raw)
            raw.sendall(whole[:cut])
            time.sleep(0.05)
        _works(port)


def _until_hello(raw: socket.socket) -> None:
    received = b""
    while b'"instance"' not in received:
        received += raw.recv(65536)


def test_a_host_that_leaves_half_an_answer_unread(port: AgentPort) -> None:
    session = os.urandom(8)
    for _ in range(3):
        with port.raw() as raw:
            raw.sendall(encode(session, Kind.SYNC, 0))
            request = {"op": "run", "argv": ["cat", "/dev/zero"]}
            raw.sendall(encode_object(session, Kind.OPEN, 1, request))
            raw.recv(100_000)
        _works(port)


def test_a_host_that_never_reads(port: AgentPort) -> None:
    """Thousands of requests, no answer taken: the agent stops listening rather than growing."""
    session = os.urandom(8)
    before = port.resident()
    with port.raw() as raw:
        raw.settimeout(0.5)
        raw.sendall(encode(session, Kind.SYNC, 0))
        ping = encode_object(session, Kind.OPEN, 1, {"op": "ping"})
        with contextlib.suppress(TimeoutError):
            for _ in range(300):
                raw.sendall(ping * 1000)
    assert port.resident() - before < 16 << 20
    _works(port)


def test_a_host_that_sends_more_than_it_may(port: AgentPort) -> None:
    session = os.urandom(8)
    before = port.resident()
    with port.raw() as raw:
        raw.sendall(encode(session, Kind.SYNC, 0))
        request = {"op": "run", "argv": ["sleep", "100"], "stdin": True}
        raw.sendall(encode_object(session, Kind.OPEN, 1, request))
        piece = encode(session, Kind.DATA, 1, bytes(32_000))
        for _ in range(40):
            raw.sendall(piece)
        received = b""
        while b"more than it was allowed" not in received:
            received += raw.recv(65536)
    assert port.resident() - before < 16 << 20
    _works(port)


requests = st.one_of(
    st.dictionaries(
        st.sampled_from(["op", "argv", "shell", "path", "cwd", "env", "mode", "timeout", "x"]),
        st.one_of(st.none(), st.integers(), st.text(max_size=5), st.lists(st.integers())),
        max_size=4,
    ),
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["run", "put", "get", "ping", "personalise", "nothing"]),
            "path": st.sampled_from(["", "/", "/no/such", "/proc/self/mem", "/dev/null", "\0"]),
            "argv": st.one_of(st.none(), st.lists(st.sampled_from(["", "true", "\0", "é"]))),
            "timeout": st.one_of(st.none(), st.just("soon"), st.floats(0, 0.1)),
            "env": st.one_of(st.none(), st.just({"A": 1}), st.just({"A=": "b"}), st.just([])),
            "hostname": st.text(max_size=3),
        }
    ),
)
hostile = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda kind, channel, payload: ("frame", kind, channel, payload),
        st.integers(0, 255),
        st.integers(0, 3),
        st.binary(max_size=40),
    ),
    st.builds(lambda channel, value: ("open", channel, value), st.integers(0, 3), requests),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(hostile, max_size=12))
def test_garbage_and_nonsense(port: AgentPort, parts: list[object]) -> None:
    session = os.urandom(8)
    with port.raw() as raw:
        raw.sendall(encode(session, Kind.SYNC, 0))
        _until_hello(raw)
        for part in parts:
            raw.sendall(_hostile_bytes(session, part))
        raw.sendall(frames.FILLER)
    _works(port)


def _hostile_bytes(session: bytes, part: object) -> bytes:
    if isinstance(part, bytes):
        return part
    assert isinstance(part, tuple)
    if part[0] == "open":
        return encode(session, Kind.OPEN, part[1], json.dumps(part[2]).encode())
    return encode(session, part[1], part[2], part[3])


def test_an_agent_that_dies_is_noticed_and_its_successor_serves(
    port: AgentPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bluebridge.host_tools.agent.connection._REPEAT", 0.3)
    agent = Agent.connect("a", [port.path], 20, alarms=[lambda: None])
    command = agent.start("exec sleep 4")
    until(lambda: bool(port.children()))
    port.restart_agent()
    begin = time.monotonic()
    with pytest.raises(AgentLost, match="guest a: its agent was started anew"):
        command.wait()
    assert time.monotonic() - begin < 8
    agent.close()
    _works(port)


def test_one_client_per_socket(port: AgentPort) -> None:
    with port.connect(), pytest.raises(AgentBusy, match="guest a: all 1 ports"):
        port.connect(timeout=0.2)


Script = Callable[[socket.socket], object]


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Callable[[Script], Path]]:
    """Play a guest: a script gets the first connection to the socket that is returned."""
    path, threads = tmp_path / "sock", list[threading.Thread]()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def play(script: Script) -> Path:
            def run() -> None:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    script(connection)

            threads.append(threading.Thread(target=run))
            threads[-1].start()
            return path

        yield play
        for thread in threads:
            thread.join()


def _greet(raw: socket.socket, protocol: int = PROTOCOL) -> bytes:
    session = raw.recv(65536)[4:12]
    hello = {"version": "0", "protocol": protocol, "instance": "x", "channels": []}
    raw.sendall(encode_object(session, Kind.HELLO, 1, hello))
    return session


def test_a_guest_without_an_agent(guest: Callable[[Script], Path]) -> None:
    path = guest(_read_all)
    with pytest.raises(AgentSilent, match="guest a: its agent does not answer within 1 s"):
        Agent.connect("a", [path], timeout=1)


def _read_all(raw: socket.socket, _session: bytes = b"") -> None:
    while raw.recv(65536):
        pass


def test_another_protocol(guest: Callable[[Script], Path]) -> None:
    path = guest(lambda raw: _read_all(raw, _greet(raw, 99)))
    with pytest.raises(AgentError, match="speaks protocol 99"):
        Agent.connect("a", [path], timeout=5)


def test_no_qemu(tmp_path: Path) -> None:
    with pytest.raises(AgentLost, match="No such file or directory; is QEMU running"):
        Agent.connect("a", [tmp_path / "none"], timeout=0.1)


def test_qemu_ends_during_a_command(guest: Callable[[Script], Path]) -> None:
    path = guest(lambda raw: (_greet(raw), raw.recv(1000)))
    with Agent.connect("a", [path], timeout=5) as agent:
        with pytest.raises(AgentLost, match="guest a: QEMU closed the agent's port"):
            agent.run("true")
        with pytest.raises(AgentLost):
            agent.run("true")


def test_an_alarm_explains_a_lost_connection(guest: Callable[[Script], Path]) -> None:
    begin = time.monotonic()

    def late() -> LabError | None:
        return LabError("QEMU ended with status 3") if time.monotonic() - begin > 0.5 else None

    path = guest(lambda raw: (_greet(raw), raw.recv(1000)))
    with (
        Agent.connect("a", [path], timeout=5, alarms=[late]) as agent,
        pytest.raises(LabError, match="status 3"),
    ):
        agent.run("true")


@pytest.mark.parametrize("late", [0, 0.5])
def test_a_guest_that_hangs(guest: Callable[[Script], Path], late: float) -> None:
    def script(raw: socket.socket) -> None:
        time.sleep(late)
        _read_all(raw, _greet(raw))

    path = guest(script)
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(str(path))
    connection = AgentConnection("a", raw, silence=0.5)
    connection.synchronise(5)
    with pytest.raises(AgentSilent, match="guest a: no answer"):
        connection.open({"op": "ping"}, "ping").result()
    connection.close()
    raw.close()


def test_a_long_pause_between_two_commands_is_no_silence(tmp_path: Path) -> None:
    with agent_port(tmp_path) as port, port.connect() as agent:
        agent.ping()
        agent.connection.heard -= 1000  # as if the user had been to lunch
        assert agent.run("sleep 1; echo here", timeout=30).text == "here"


def test_a_guest_that_talks_nonsense(guest: Callable[[Script], Path]) -> None:
    def script(raw: socket.socket) -> None:
        session = _greet(raw)
        raw.recv(1000)
        raw.sendall(encode(session, Kind.DONE, 1, struct.pack("I", 7)))
        _read_all(raw)

    path = guest(script)
    with Agent.connect("a", [path], timeout=5) as agent, pytest.raises(AgentLost, match="nonsense"):
        agent.ping()
