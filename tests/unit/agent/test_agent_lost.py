"""No operation is waited for in vain: late news of an earlier host, snapshots, lost frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bluebridge.guest.agent.frames import Kind, encode, encode_object
from bluebridge.guest.agent.served_port import GONE_SECONDS
from bluebridge.host_tools.agent import Agent, AgentForgot, AgentRefused, connection
from tests.models.scripted_port import Host, ScriptedPort, scripted_port, session


def _run(agent: Agent) -> str:
    return agent.run("echo fine", timeout=30).text


def _ping(agent: Agent) -> Any:
    return agent.ping()["operations"]


@pytest.mark.parametrize(("work", "result"), [(_run, "fine"), (_ping, 0)])
@pytest.mark.parametrize("read", [False, True])
def test_that_the_last_host_is_gone_is_told_late(
    tmp_path: Path, work: Callable[[Agent], Any], result: Any, read: bool
) -> None:
    """Linux tells it after the next host was greeted, before or after its OPEN is read."""
    with scripted_port(tmp_path) as port, mock.patch.object(connection, "_REPEAT", 60):
        port.control = [False, True]
        host = Host(port, work)
        port.up()
        port.guest()
        port.down()
        port.up()  # HELLO has arrived: this is OPEN
        if read:
            port.guest()
        port.told()
        port.guest()
        port.told()
        assert host.end() == result


def test_a_host_that_is_gone_for_good_takes_its_commands_along(tmp_path: Path) -> None:
    with scripted_port(tmp_path) as port:
        name = session()
        port.put(encode(name, Kind.SYNC, 1))
        port.put(encode_object(name, Kind.OPEN, 1, {"op": "run", "argv": ["sleep", "300"]}))
        port.guest()
        assert port.served.operations == 1
        port.control = [False]
        port.later(0)
        assert port.served.operations == 1
        port.later(GONE_SECONDS)
        assert port.served.operations == 0


def test_a_host_that_was_gone_before_its_bytes_are_read(tmp_path: Path) -> None:
    with scripted_port(tmp_path) as port:
        port.control = [False]
        port.told()
        name = session()
        port.put(encode(name, Kind.SYNC, 1))
        port.put(encode_object(name, Kind.OPEN, 1, {"op": "run", "argv": ["sleep", "300"]}))
        port.guest()
        assert port.served.operations == 1
        port.later(GONE_SECONDS)
        assert port.served.operations == 0


def _lost(tmp_path: Path, work: Callable[[Agent], Any]) -> Any:
    """Return the end of an operation whose OPEN reaches the agent after it ended the session."""
    with scripted_port(tmp_path) as port, mock.patch.object(connection, "_REPEAT", 0.1):
        host = Host(port, work)
        port.up()
        port.guest()
        port.down()
        port.served.end_session()
        return host.end()


def test_an_operation_that_got_lost_is_told(tmp_path: Path) -> None:
    with pytest.raises(AgentForgot, match=r"guest a: its agent lost `echo fine`, .*; try again"):
        _lost(tmp_path, _run)
    with pytest.raises(AgentForgot, match="lost put"):
        _lost(tmp_path, lambda agent: agent.put(bytes(1_000_000), str(tmp_path / "x")))
    with pytest.raises(AgentForgot, match="lost get"):
        _lost(tmp_path, lambda agent: agent.read("/etc/passwd"))


def test_a_question_that_got_lost_is_asked_anew(tmp_path: Path) -> None:
    assert _lost(tmp_path, _ping) == 0


def test_after_a_loss_the_connection_serves_on(tmp_path: Path) -> None:
    def work(agent: Agent) -> str:
        with pytest.raises(AgentForgot):
            _run(agent)
        return _run(agent)

    assert _lost(tmp_path, work) == "fine"


def test_a_loss_is_noticed_although_another_operation_talks_on(tmp_path: Path) -> None:
    def work(agent: Agent) -> None:
        agent.start("while echo; do sleep 0.01; done", timeout=60)
        with pytest.raises(AgentForgot, match="lost `echo gone`"):
            agent.run("echo gone", timeout=30)

    with scripted_port(tmp_path) as port, mock.patch.object(connection, "_REPEAT", 0.1):
        port.swallow = b"echo gone"
        Host(port, work).end()


def test_commands_of_which_nothing_is_heard_for_long_are_not_lost(tmp_path: Path) -> None:
    with scripted_port(tmp_path) as port, mock.patch.object(connection, "_REPEAT", 0.05):
        host = Host(port, lambda agent: agent.run("sleep 0.5; echo still", timeout=30).text)
        assert host.end() == "still"


def test_a_failure_that_quotes_the_longest_request_is_told(tmp_path: Path) -> None:
    with scripted_port(tmp_path) as port:
        host = Host(port, lambda agent: agent.read("/" + 32_700 * "x"))
        with pytest.raises(AgentRefused, match=r"get: /x+ \.\.\. x+: File name too long"):
            host.end()


def test_a_request_that_no_parser_survives_is_refused(tmp_path: Path) -> None:
    with scripted_port(tmp_path) as port:
        name = session()
        port.put(encode(name, Kind.SYNC, 1))
        port.put(encode(name, Kind.OPEN, 1, b"[" * 30_000))
        port.guest()
        assert b'"code": "request"' in port.drop()


left = st.sampled_from(["nothing", "sync", "open", "half a header", "half a frame"])
"""Bytes that an earlier host has left unread in the port, or a snapshot has kept there."""
steps = st.lists(
    st.one_of(
        st.tuples(st.just("up"), st.sampled_from([1, 31, 33, 200, 4096, 1 << 20])),
        st.tuples(st.just("down"), st.sampled_from([1, 40, 1 << 20])),
        st.tuples(st.sampled_from(["guest", "told", "wait for the host"]), st.just(0)),
        st.tuples(st.just("later"), st.sampled_from([0, 1, 3])),
    ),
    max_size=25,
)


def _leave(port: ScriptedPort, what: str) -> None:
    """Play the earlier host: a session of its own, with a command, and its last bytes."""
    name = session()
    port.put(encode(name, Kind.SYNC, 1))
    port.put(encode_object(name, Kind.OPEN, 1, {"op": "run", "argv": ["cat"], "stdin": True}))
    port.guest()
    port.drop()
    port.put(
        {
            "nothing": b"",
            "sync": encode(session(), Kind.SYNC, 1),
            "open": encode_object(name, Kind.OPEN, 2, {"op": "ping"}),
            "half a header": encode(name, Kind.DATA, 1, b"x")[:9],
            "half a frame": encode(name, Kind.DATA, 1, bytes(30_000))[:77],
        }[what]
    )


def _step(port: ScriptedPort, action: str, size: int) -> None:
    if action == "up":
        port.up(size, wait=False)
    elif action == "down":
        port.down(size)
    elif action == "guest":
        port.guest()
    elif action == "told":
        port.told()
    elif action == "later":
        port.later(size)
    else:
        port.idle()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(left, st.lists(st.booleans(), max_size=1), st.sampled_from([0.0, 0.05]), steps)
@example("nothing", [True], 5.0, [("up", 1 << 20), ("guest", 0), ("down", 1 << 20), ("told", 0)])
def test_whatever_the_port_does_no_operation_gets_lost(
    tmp_path: Path, what: str, again: list[bool], filler: float, script: list[tuple[str, int]]
) -> None:
    """Portions, delays and news in any order, after an earlier host or a restored snapshot.

    `filler` is the patience before FILLER; nudges come all the time. An operation that the agent
    had lost would be `AgentForgot` here.
    """
    with (
        scripted_port(tmp_path) as port,
        mock.patch.object(connection, "_FILLER_AFTER", filler),
        mock.patch.object(connection, "_REPEAT", 0.02),
    ):
        _leave(port, what)
        port.control = [False, True] if again else []
        host = Host(port, _run)
        for action, size in script:
            _step(port, action, size)
        assert host.end() == "fine"
        assert port.served.operations == 0
