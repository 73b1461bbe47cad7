"""Commands with a terminal through the real agent, and `run -t` without one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.host_tools import cli
from bluebridge.host_tools.agent import Agent, Command, CommandTimedOut
from tests.models.agent_port import AgentPort

SIZE = os.terminal_size((91, 17))


@pytest.fixture(scope="module", autouse=True)
def no_complaints(port: AgentPort) -> Iterator[None]:
    """The agent says nothing on its standard error."""
    yield
    assert port.complaints() == ""


class Screen:
    """The text that a command has written to its terminal so far."""

    def __init__(self, command: Command) -> None:
        self.text = ""
        self._pieces = command.output()

    def wait_for(self, words: str) -> None:
        """Read on until `words` are there."""
        while words not in self.text:
            self.text += next(self._pieces)[1].decode()


def test_all_streams_are_a_terminal_of_the_given_size(agent: Agent) -> None:
    command = agent.start("test -t 0 && test -t 1 && test -t 2 && stty size", terminal=SIZE)
    completed = command.wait()
    assert (completed.status, completed.stdout, completed.stderr) == (0, b"17 91\r\n", b"")


def test_ctrl_c_that_is_typed_interrupts(agent: Agent) -> None:
    line = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done"
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as keyboard, open(write, "wb", buffering=0) as hand:
        command = agent.start(line, terminal=SIZE, stdin=keyboard)
        screen = Screen(command)
        screen.wait_for("ready\r\n")
        hand.write(b"\x03")
        screen.wait_for("caught")
        assert command.wait().status == 3


def test_the_command_learns_of_a_new_size(agent: Agent) -> None:
    line = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.1; done"
    command = agent.start(line, terminal=SIZE)
    screen = Screen(command)
    screen.wait_for("ready\r\n")
    command.resize(os.terminal_size((120, 40)))
    screen.wait_for("40 120\r\n")
    assert command.wait().status == 0


def test_end_of_input_is_typed_as_well(agent: Agent) -> None:
    completed = agent.start("cat", terminal=SIZE, stdin=b"word\n").wait()
    assert completed.status == 0
    assert completed.stdout.startswith(b"word\r\nword\r\n")


def test_much_output_is_whole(agent: Agent) -> None:
    completed = agent.start("seq 100000", terminal=SIZE).wait()
    assert completed.stdout.split() == [str(number).encode() for number in range(1, 100001)]


def test_a_time_limit_holds_here_too(agent: Agent) -> None:
    with pytest.raises(CommandTimedOut):
        agent.start("sleep 60", 0.3, terminal=SIZE).wait()


def test_without_a_terminal_here_nothing_is_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert cli.main(["run", "-t", "a", "--", "top"]) == 2
    assert "leave out -t" in capsys.readouterr().err
