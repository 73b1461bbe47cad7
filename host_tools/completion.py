"""Answers the shell at the completion key; `bluebridge completion` prints how it asks."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

import argcomplete
import argcomplete.completers
from argcomplete.shell_integration import shellcode

from bluebridge.device.buslog.marks import marked
from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.device.fabric import fault_words
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.faults import BY_NAME
from bluebridge.device.layout.net.roce import Op
from bluebridge.host_tools import arguments
from bluebridge.host_tools.analyzer.event_lines import KINDS
from bluebridge.host_tools.keeper import registry
from bluebridge.host_tools.lab.roots import state_root

SHELLS = ("bash", "zsh")

_SEVERAL: dict[tuple[str, str], Collection[str]] = {
    ("log", "kind"): KINDS,
    ("link", "kind"): fault_words.KINDS,
    ("link", "opcode"): (*Op.__members__, *fault_words.ANSWERS),
}
"""The words of options that take several with commas, by command and option."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        'Print what a shell reads: `eval "$(bluebridge completion bash)"` in ~/.bashrc, or with '
        "zsh in ~/.zshrc, completes commands, options, their values, guests that run and files."
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def main(options: argparse.Namespace) -> int:
    """Print the script; returns 0."""
    print(shellcode(["bluebridge"], shell=options.shell))
    return 0


def answer() -> None:
    """Print the words that may stand at the cursor for the shell, then end the program."""
    words = _words(os.environ.get("COMP_LINE", ""))
    parser = arguments.of_line(words)
    command = words[0] if words else ""
    for action in _actions(parser):
        if isinstance(action.metavar, str) and action.metavar.startswith("GUEST"):
            action.completer = _guests  # type: ignore[attr-defined]
        elif (command, action.dest) == ("fault", "name"):
            action.completer = _faults  # type: ignore[attr-defined]
        elif action.dest == "folder" and action.metavar == "DIR":
            action.completer = _logs  # type: ignore[attr-defined]
        elif known := _SEVERAL.get((command, action.dest)):
            action.completer = partial(_several, known)  # type: ignore[attr-defined]
        elif action.dest in ("from_mark", "to_mark"):
            action.completer = _marks  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _words(line: str) -> list[str]:
    """Return the words after the program's name; none for a line whose quotes are still open."""
    try:
        return shlex.split(line)[1:]
    except ValueError:
        return []


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)


def _logs(prefix: str, **_: object) -> list[str]:
    """Return the folders of kept runs, and the folders that the typed path may lead to."""
    runs = [str(path) for path in sorted(state_root().glob("run-*"))]
    return [*runs, *argcomplete.completers.DirectoriesCompleter()(prefix)]


def _several(known: Collection[str], prefix: str, **_: object) -> list[str]:
    """Return the known words, behind those that were typed with a comma."""
    before, comma, _last = prefix.rpartition(",")
    return [f"{before}{comma}{word}" for word in known]


def _marks(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the texts of the marks in the log of the line, else in that of the newest pair."""
    folders = [Path(pair.logs) for _, pair in registry.pairs() if pair.logs]
    folders += [parsed_args.folder] if parsed_args.folder else []
    if not folders:
        return []
    notes = LogReader(folders[-1]).events(Filter(kinds=frozenset((Kind.NOTE,))))
    return list({text: None for each in notes if (text := marked(each)) is not None})


def _faults(**_: object) -> list[str]:
    return [*BY_NAME, "armed", "clear"]


def _guests(**_: object) -> list[str]:
    return [name for _, pair in registry.pairs() for name in pair.names()]
