"""Commands through the real agent: status, streams, limits, many at once."""

from __future__ import annotations

import io
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from bluebridge.guest.agent.frames import WINDOW
from bluebridge.host_tools.agent import (
    Agent,
    AgentCommandFailed,
    AgentError,
    AgentRefused,
    Command,
    CommandTimedOut,
)
from bluebridge.host_tools.errors import CommandFailed
from tests.models.agent_port import AgentPort
from tests.models.until import until


def test_status_and_separate_streams(agent: Agent) -> None:
    completed = agent.run("echo out; echo err >&2; exit 7", timeout=10)
    assert (completed.status, completed.stdout, completed.stderr) == (7, b"out\n", b"err\n")
    assert completed.signal is None


def test_a_list_of_words_meets_no_shell(agent: Agent) -> None:
    words = ["printf", "%s|", "a b", "$HOME", "*", "ä", ""]
    assert agent.run(words, timeout=10).text == "a b|$HOME|*|ä||"


def test_a_signal_becomes_a_status_as_in_the_shell(agent: Agent) -> None:
    completed = agent.run(["sh", "-c", "kill -TERM $$"], timeout=10)
    assert (completed.status, completed.signal) == (143, signal.SIGTERM)


def test_folder_and_environment(agent: Agent, tmp_path: Path) -> None:
    completed = agent.run('pwd; echo "$COLOUR"', cwd=str(tmp_path), env={"COLOUR": "blue"})
    assert completed.text == f"{tmp_path}\nblue"


def test_binary_both_ways(agent: Agent) -> None:
    data = bytes(range(256)) * 5000
    assert agent.run("cat", stdin=data, check=True).stdout == data


def test_input_from_a_stream(agent: Agent) -> None:
    assert agent.run("wc -c", stdin=io.BytesIO(bytes(700_000))).text.strip() == "700000"


def test_without_input_it_is_empty(agent: Agent) -> None:
    assert agent.run("cat", timeout=10).stdout == b""


def test_a_process_that_reads_no_input_does_not_block(agent: Agent) -> None:
    assert agent.run("exec <&-; echo done", stdin=bytes(3 * WINDOW)).text == "done"
    assert agent.run("sleep 0.3", stdin=bytes(3 * WINDOW)).status == 0


def test_check_raises_with_the_output(agent: Agent) -> None:
    with pytest.raises(CommandFailed, match=r"guest a: `echo so; exit 3` ended with status 3: so"):
        agent.run("echo so; exit 3", check=True)
    with pytest.raises(AgentCommandFailed) as caught:
        agent.run("echo so; echo why >&2; exit 3", check=True)
    assert (caught.value.exit_status, caught.value.stderr) == (3, b"why\n")


@pytest.mark.parametrize(
    ("words", "cwd", "pattern"),
    [
        (["no-such-program"], None, "no-such-program: No such file"),
        (["true"], "/no/such/folder", "/no/such/folder: no such folder"),
        (["/etc"], None, "/etc: Permission denied"),
        ([], None, "a command is a list of words"),
    ],
)
def test_what_cannot_be_started(
    agent: Agent, words: list[str], cwd: str | None, pattern: str
) -> None:
    with pytest.raises(AgentRefused, match=pattern):
        agent.run(words, cwd=cwd)


def test_a_command_line_that_is_too_long(agent: Agent) -> None:
    with pytest.raises(AgentError, match="longer than"):
        agent.run(["echo", "x" * 40_000])


def test_time_limit_kills_the_whole_session(agent: Agent, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    line = f"echo begun; sleep 300 & echo $! > {pids}; set -m; sleep 301 & echo $! >> {pids}; wait"
    begin = time.monotonic()
    with pytest.raises(CommandTimedOut, match=r"was killed after 2 s") as caught:
        agent.run(line, timeout=2)
    assert time.monotonic() - begin < 60
    assert caught.value.stdout == b"begun\n"
    for pid in pids.read_text().split():
        until(partial(_dead, int(pid)))


def _dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, ProcessLookupError):
        return True


def test_time_limit_of_a_deaf_process(agent: Agent) -> None:
    with pytest.raises(CommandTimedOut):
        agent.run("trap '' TERM INT HUP; while :; do sleep 1; done", timeout=0.3)
    assert agent.run("true", timeout=10).status == 0


def test_background_processes_outlive_their_command(agent: Agent, tmp_path: Path) -> None:
    begin, mark = tmp_path / "begin", tmp_path / "mark"
    late = f"until [ -e {begin} ]; do sleep 0.05; done; echo late; echo later; touch {mark}"
    assert agent.run(f"({late}) & echo now", timeout=10).stdout == b"now\n"
    begin.touch()
    until(mark.exists)


def test_signals(agent: Agent) -> None:
    command = agent.start("trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done")
    stream = command.output()
    assert next(stream) == ("stdout", b"ready\n")
    command.signal(signal.SIGUSR1)
    # The signal goes to the whole group: the shell may complain of its sleep on standard error.
    assert [data for name, data in stream if name == "stdout"] == [b"got\n"]
    assert command.wait().status == 5


def test_output_comes_as_it_is_made(agent: Agent) -> None:
    pieces: list[tuple[str, bytes, float]] = []
    begin = time.monotonic()
    agent.run(
        "echo a; sleep 0.5; echo b >&2",
        on_output=lambda name, data: pieces.append((name, data, time.monotonic() - begin)),
    )
    assert [piece[:2] for piece in pieces] == [("stdout", b"a\n"), ("stderr", b"b\n")]
    assert pieces[1][2] - pieces[0][2] > 0.3


def test_many_at_once(agent: Agent) -> None:
    commands = [agent.start(f"sleep 0.2; echo {number}; exit {number}") for number in range(40)]
    begin = time.monotonic()
    for number, command in enumerate(commands):
        completed = command.wait()
        assert (completed.status, completed.text) == (number, str(number))
    assert time.monotonic() - begin < 8


def test_from_many_threads(agent: Agent) -> None:
    results: dict[int, bytes] = {}

    def work(number: int) -> None:
        data = bytes([number]) * 300_000
        results[number] = agent.run("cat", stdin=data, check=True).stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: bytes([number]) * 300_000 for number in range(6)}


def test_too_many_at_once_are_refused(agent: Agent) -> None:
    commands = [agent.start("cat", stdin=_Never()) for _ in range(64)]
    with pytest.raises(AgentRefused, match="more than 64 at once"):
        agent.run("true")
    for command in commands:
        command.kill()


class _Never(io.BytesIO):
    """Input that never comes."""

    def read1(self, size: int | None = -1) -> bytes:
        threading.Event().wait()
        return b""


def test_a_flood_that_nobody_reads_waits_in_bounded_memory(agent: Agent, port: AgentPort) -> None:
    before = port.resident()
    floods = [agent.start("exec cat /dev/zero") for _ in range(4)]
    time.sleep(1)
    assert port.resident() - before < 16 << 20
    assert agent.run("echo fine", timeout=10).text == "fine"
    for flood in floods:
        flood.kill()
    until(lambda: not port.children())


def test_a_flood_is_streamed(agent: Agent) -> None:
    line = "head -c 30000000 /dev/zero; head -c 3000000 /dev/zero >&2"
    completed = agent.run(line, most=33_000_000)
    assert (len(completed.stdout), len(completed.stderr)) == (30_000_000, 3_000_000)


def test_a_flood_beyond_the_limit_is_killed(agent: Agent, port: AgentPort) -> None:
    with pytest.raises(AgentError, match="printed more than 1000000 bytes"):
        agent.run("cat /dev/zero", most=1_000_000)
    until(lambda: not port.children())


def test_ctrl_c_kills_the_command(agent: Agent, port: AgentPort) -> None:
    def interrupt(_name: str, _data: bytes) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        agent.run("echo x; sleep 300", on_output=interrupt)
    until(lambda: not port.children())


def test_killing_twice_and_after_the_end_is_harmless(agent: Agent) -> None:
    command: Command = agent.start("true")
    command.wait()
    command.kill()
    command.kill()
