"""`bluebridge man`: prints the manual page, made from the commands' own tables."""

from __future__ import annotations

import argparse
import re

import bluebridge
from bluebridge.host_tools import arguments

_STATUS = {
    "0": "done",
    "1": "it failed; one line on standard error says what, and how to mend it",
    "2": "the command line is wrong",
    "130": "stopped with Ctrl-C",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare that the command has no options."""
    parser.description = (
        "Print the manual page of all commands with their options: `bluebridge man | man -l -`; "
        "man finds it as share/man/man1/bluebridge.1 beside a bin folder of PATH."
    )


def main(_options: argparse.Namespace) -> int:
    """Print the page; returns 0."""
    print("\n".join(page()))
    return 0


def page() -> list[str]:
    """Return the lines of the page, in roff with the man macros."""
    lines = [
        f'.TH BLUEBRIDGE 1 "" "bluebridge {bluebridge.__version__}" "User Commands"',
        ".SH NAME",
        _text("bluebridge - a virtual PCIe lab: guests with an emulated ConnectX-3 or a bridge"),
        ".SH SYNOPSIS",
        ".B bluebridge",
        _text("COMMAND ..."),
        ".SH DESCRIPTION",
        _text("Each command says with --help what it takes. Those that are most used come first."),
    ]
    for title, group in arguments.GROUPS.items():
        lines.append(f".SH {_text(title.upper())}")
        for name in group:
            lines += _command(name, arguments.parser_of(name))
    lines.append(".SH EXIT STATUS")
    for status, meaning in _STATUS.items():
        lines += [".TP", f".B {status}", _text(meaning)]
    return lines


def _command(name: str, parser: argparse.ArgumentParser) -> list[str]:
    usage = re.sub(r"\s+", " ", parser.format_usage().removeprefix("usage: ")).strip()
    lines = [f".SS {_text(name)}", f".B {_text(usage)}", ".PP"]
    lines += [_text(line) for line in (parser.description or "").splitlines()]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each, inner in action.choices.items():
                lines += _command(f"{name} {each}", inner)
        elif action.help is not argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
            lines += [".TP", f".B {_text(_named(action))}", _text(_meaning(parser, action))]
    return lines


def _named(action: argparse.Action) -> str:
    """Return an option with its value, or a word by its name."""
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
    shown = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return shown or action.dest
    takes = "" if action.nargs == 0 else f" {shown or action.dest.upper()}"
    return ", ".join(action.option_strings) + takes


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else "(see the usage)"


def _text(text: str) -> str:
    """Return a line of text in which roff finds no request and no escape."""
    safe = text.strip().replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{safe}" if safe[:1] in (".", "'") else safe
