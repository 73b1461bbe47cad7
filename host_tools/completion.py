"""Answers the shell when the user presses the completion key in a line of `bluebridge`."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator

import argcomplete
import argcomplete.completers

from bluebridge.host_tools import arguments
from bluebridge.host_tools.analyzer.event_lines import KINDS
from bluebridge.host_tools.keeper import registry
from bluebridge.host_tools.lab.roots import state_root


def answer() -> None:
    """Print the words that may stand at the cursor for the shell, then end the program."""
    words = _words(os.environ.get("COMP_LINE", ""))
    parser = arguments.of_line(words)
    for action in _actions(parser):
        if isinstance(action.metavar, str) and action.metavar.startswith("GUEST"):
            action.completer = _guests  # type: ignore[attr-defined]
        elif action.dest == "folder" and action.metavar == "DIR":
            action.completer = _logs  # type: ignore[attr-defined]
        elif action.dest == "kind" and words[:1] == ["log"]:
            action.completer = _kinds  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def _words(line: str) -> list[str]:
    """Return the words after the program's name; none for a line whose quotes are still open."""
    try:
        return shlex.split(line)[1:]
    except ValueError:
        return []


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its subparsers."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)


def _logs(prefix: str, **_: object) -> list[str]:
    """Return the folders of kept runs, and the folders that the typed path may lead to."""
    runs = [str(path) for path in sorted(state_root().glob("run-*"))]
    return [*runs, *argcomplete.completers.DirectoriesCompleter()(prefix)]


def _kinds(prefix: str, **_: object) -> list[str]:
    """Return the kinds of events, behind those that were typed with a comma."""
    before, comma, _last = prefix.rpartition(",")
    return [f"{before}{comma}{kind}" for kind in KINDS]


def _guests(**_: object) -> list[str]:
    """Return the names of the guests that run."""
    return [name for _, pair in registry.pairs() for name in pair.names()]
