"""The manual page, and completion as bash asks for it, made of the commands' tables."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.faults import FAULTS
from bluebridge.host_tools.arguments import COMMANDS, parser_of
from bluebridge.host_tools.cli import main
from bluebridge.host_tools.keeper.claims import claim_number
from bluebridge.host_tools.keeper.record import GuestRecord, PairRecord
from bluebridge.images.cache import HOME
from tests.models.analysis_log import A, Sender

ACTS = {
    "up", "run", "python", "cp", "console", "restart", "boot", "down", "mark", "weather", "kmod",
    "cc", "completion", "man", "tour", "web", "watch", "mmiotrace", "sweep", "ntb", "rtrs",
    "ntrdma", "cache", "image", "kernel", "bisect",
}  # fmt: skip
"""Commands that do something, show a program's own output, or have commands of their own."""


@pytest.fixture
def page(capsys: pytest.CaptureFixture[str]) -> str:
    """The page as it is printed."""
    assert main(["man"]) == 0
    return capsys.readouterr().out


def test_every_command_and_option_is_in_the_page(page: str) -> None:
    for name in COMMANDS:
        section = page.partition(f".SS {name}\n")[2]
        assert section, name
        for action in parser_of(name)._actions:
            for option in action.option_strings:
                if option not in ("-h", "--help"):
                    assert option.replace("-", "\\-") in section, f"{name} {option}"


def test_commands_of_a_command_are_in_the_page(page: str) -> None:
    assert ".SS ntrdma perf\n" in page


def test_roff_has_no_complaint(page: str) -> None:
    groff = shutil.which("groff")
    if groff is not None:
        line = [groff, "-man", "-ww", "-Tutf8"]
        done = subprocess.run(line, input=page, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert "stopped with Ctrl-C" in done.stdout
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".B", ".TP", ".PP"}


def test_a_command_that_shows_facts_shows_them_as_json() -> None:
    without = {
        name
        for name in COMMANDS
        if not any("--json" in a.option_strings for a in parser_of(name)._actions)
    }
    assert without == ACTS


def test_the_list_of_faults_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fault", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in found] == [fault.name for fault in FAULTS]
    assert set(found[0]) == {"name", "layer", "needs", "takes", "meaning", "seen", "cards"}
    cards = {each["name"]: each["cards"] for each in found}
    assert cards["cqe-lost"] == ["connectx3", "connectx5"]
    assert cards["map-icm-fails"] == ["connectx3"]


@pytest.mark.parametrize("line", ["fault a hung-wr --json", "link a down --json"])
def test_json_is_for_what_is_shown(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bluebridge.host_tools.keeper.guests.find_up", lambda name: None)
    assert main(line.split()) == 2
    assert "--json is for what is shown" in capsys.readouterr().err


ASK = """
eval "$({python} -m bluebridge.host_tools.cli completion bash)"
bluebridge() {{ {python} -m bluebridge.host_tools.cli "$@"; }}
export -f bluebridge
COMP_LINE="$1" COMP_POINT=${{#1}} COMP_TYPE=9
COMP_WORDS=($1) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
[ "${{1% }}" = "$1" ] || COMP_CWORD=$((COMP_CWORD + 1))
_python_argcomplete bluebridge
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def _complete(line: str, runtime: Path) -> list[str]:
    script = ASK.format(python=sys.executable)
    done = subprocess.run(
        ["bash", "-c", script, "bash", line],
        cwd=HOME,
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(HOME)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return [word.strip() for word in done.stdout.split()]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bluebridge re", ["restart"]),
        ("bluebridge up --ca", ["--card", "--capture"]),
        ("bluebridge up --driver ", ["guest", "kernel", "none"]),
        ("bluebridge link a re", ["rewrite", "release", "remove", "restore"]),
        ("bluebridge log --view tra", ["traffic"]),
        ("bluebridge fault a hung", ["hung-wr"]),
        ("bluebridge log --kind comm", ["command"]),
        ("bluebridge log --kind irq,comm", ["irq,command"]),
        ("bluebridge link a drop --kind da", ["datagram"]),
        ("bluebridge link a drop --opcode ACK,FETCH", ["ACK,FETCH_ADD"]),
    ],
)
def test_commands_options_and_values(line: str, words: list[str], tmp_path: Path) -> None:
    assert _complete(line, tmp_path) == words


def test_guests_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    claim = claim_number()
    try:
        PairRecord(claim.number, [GuestRecord("a2"), GuestRecord("b2")]).write(claim.description)
        assert _complete("bluebridge console ", tmp_path)[-2:] == ["a2", "b2"]
    finally:
        claim.close()


def test_marks_of_the_log_of_the_line(tmp_path: Path) -> None:
    sender = Sender(tmp_path / "log")
    for name in ("begin", "before-reset", "begin"):
        sender.log.tell(A, Fact.MARK, text=name)
    sender.log.close()
    line = f"bluebridge log {tmp_path / 'log'} --mark be"
    assert _complete(line, tmp_path) == ["begin", "before-reset"]
    assert _complete("bluebridge log --to-mark be", tmp_path) == []


def test_logs_of_kept_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run = tmp_path / "bluebridge" / "run-1"
    run.mkdir(parents=True)
    for command in ("log", "web"):
        assert f"{run}" in _complete(f"bluebridge {command} {tmp_path}/blue", tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_names_the_program(shell: str) -> None:
    words = [sys.executable, "-m", "bluebridge.host_tools.cli", "completion", shell]
    done = subprocess.run(words, cwd=HOME, capture_output=True, text=True, check=True)
    assert "bluebridge" in done.stdout
