"""The manual page: made from the commands' tables, it has all of them; and what answers as JSON."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from bluebridge.device.layout.mlx4.faults import FAULTS
from bluebridge.host_tools.arguments import COMMANDS, parser_of
from bluebridge.host_tools.cli import main

ACTS = {
    "up", "run", "cp", "console", "restart", "boot", "down", "mark", "weather", "kmod",
    "completion", "man", "tour", "web", "watch", "mmiotrace", "sweep", "ntb", "rtrs", "ntrdma",
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
    assert set(found[0]) == {"name", "layer", "needs", "takes", "meaning", "seen"}


@pytest.mark.parametrize("line", ["fault a hung-wr --json", "link a down --json"])
def test_json_is_for_what_is_shown(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bluebridge.host_tools.commands.device_server.find", lambda name: None)
    assert main(line.split()) == 2
    assert "--json is for what is shown" in capsys.readouterr().err
