"""Answers the shell when the user presses the completion key in a line of `bluebridge`."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator

import argcomplete

from bluebridge.host_tools import arguments
from bluebridge.host_tools.keeper import registry


def answer() -> None:
    """Print the words that may stand at the cursor for the shell, then end the program."""
    parser = arguments.of_line(_words(os.environ.get("COMP_LINE", "")))
    for action in _actions(parser):
        if isinstance(action.metavar, str) and action.metavar.startswith("GUEST"):
            action.completer = _guests  # type: ignore[attr-defined]
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


def _guests(**_: object) -> list[str]:
    """Return the names of the guests that run."""
    return [name for _, pair in registry.pairs() for name in pair.names()]
