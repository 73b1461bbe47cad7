"""The commands of `bluebridge`: their names, help, modules, and the parser of a command's words."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import bluebridge

_UNKNOWN = "unrecognized arguments: "
_MISSING = "the following arguments are required: "
_CHOICES = re.compile(
    r"argument (?P<name>[^:]+): invalid choice: (?P<word>.*) \(choose from (?P<all>.*)\)"
)
_VALUE = re.compile(r"argument (?P<name>[^:]+): invalid (?:_*)(?P<kind>\w+) value: '(?P<word>.*)'")
_KINDS = {
    "int": "a whole number", "number": "a whole number", "count": "a whole number",
    "positive": "a whole number", "float": "a number",
    "seconds": "a number of seconds", "port": "a TCP port",
}  # fmt: skip

_DESCRIPTION = "A virtual PCIe lab: an emulated ConnectX-3 in each of two QEMU guests."
_EPILOG = """\
examples:
  bluebridge up                                 two guests with an HCA each, until `down`
  bluebridge run a -- lspci -vv                 a command in guest a
  bluebridge cp results.txt a:/tmp/             files to a guest, and from it
  bluebridge console b                          the serial console, Ctrl-] leaves it
  bluebridge link a down                        pull the cable; `up` plugs it in again
  bluebridge krping "server,addr=192.168.69.127,port=9999" \\
                    "client,addr=192.168.69.127,port=9999,count=100,validate"
  bluebridge log ~/.local/state/bluebridge/run-... --kind mmio,dma,irq --decode
  bluebridge watch                              what crosses the bus right now
  bluebridge doctor
"""

_TOOLS = "bluebridge.host_tools"

_COMMANDS = f"{_TOOLS}.commands"


class CommandParser(argparse.ArgumentParser):
    """An `ArgumentParser` whose errors are one line on standard error, and status 2."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self._given: list[str] = []

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does, remembering the words for the text of an error."""
        self._given = list(args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and how to mend it; ends the program with status 2."""
        # An option that does not exist explains words that seem to be missing.
        unknown = self._unknown_option() if message.startswith(_MISSING) else None
        text = f"{_UNKNOWN}{unknown}" if unknown else message
        self.exit(2, f"{self.prog}: {self._explained(text)}\n")

    def _explained(self, message: str) -> str:
        if message.startswith(_UNKNOWN):
            return self._unknown(message.removeprefix(_UNKNOWN).split()[0])
        if message.startswith(_MISSING):
            missing = message.removeprefix(_MISSING)
            verb = "are" if ", " in missing else "is"
            return f"{missing} {verb} missing; {self._help()}"
        if (found := _CHOICES.fullmatch(message)) is not None:
            choices = found["all"].replace("'", "")
            return f"{found['name']}: there is no {found['word']}; choose from {choices}"
        if (found := _VALUE.fullmatch(message)) is not None:
            kind = _KINDS.get(found["kind"], "what it takes")
            return f"{found['name']}: {found['word']!r} is not {kind}; {self._help()}"
        return f"{message.removeprefix('argument ')}; {self._help()}"

    def _help(self) -> str:
        return f"`{self.prog} --help` says what it takes"

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{word!r} is one word too many; {self._help()}"
        name = word.partition("=")[0]
        import difflib  # only where something is wrong

        near = difflib.get_close_matches(name, self._options(), n=1, cutoff=0.7)
        mend = f"did you mean {near[0]}? " if near else ""
        return f"there is no option {name}; {mend}`{self.prog} --help` lists all"

    def _options(self) -> list[str]:
        return [name for name in self._option_string_actions if name.startswith("--")]

    def _unknown_option(self) -> str | None:
        """Return the first option among the given words that this command does not have."""
        known = list(self._option_string_actions)
        for word in self._given:
            if word == "--":
                return None
            name = word.partition("=")[0]
            if word.startswith("--") and not any(each.startswith(name) for each in known):
                return name
        return None


class Subcommand(NamedTuple):
    """A command of `bluebridge`, with the names of its modules: they are imported when it is asked.

    The module `options` has `add_arguments(parser)`, and `split(words)` if a command `passes_on`
    other words than those behind the first `--`. The module `run` has `main(options)`, which
    returns the exit status or raises `LabError`.
    """

    help: str
    run: str
    options: str
    passes_on: bool = False


def _one(text: str, module: str, passes_on: bool = False) -> Subcommand:
    return Subcommand(text, module, module, passes_on)


def _beside(text: str, package: str) -> Subcommand:
    """Return the command that has a package of its own, with its options in another module."""
    return Subcommand(
        text, f"{_TOOLS}.{package}.{package}_command", f"{_TOOLS}.{package}.{package}_options"
    )


GROUPS: dict[str, dict[str, Subcommand]] = {
    "lab: two guests and their hardware": {
        "up": Subcommand(
            "start two guests with their devices and keep them",
            f"{_COMMANDS}.up",
            f"{_COMMANDS}.up_options",
            passes_on=True,
        ),
        "run": _one("run a command in a guest", f"{_COMMANDS}.run", passes_on=True),
        "python": _one("run Python here in a guest's place", f"{_COMMANDS}.python", passes_on=True),
        "cp": _one("copy files to, from and between guests", f"{_COMMANDS}.copy"),
        "console": _one("the serial console of a guest; Ctrl-] leaves it", f"{_COMMANDS}.console"),
        "ps": _one("what runs, and what has ended", f"{_COMMANDS}.ps"),
        "restart": _one("switch a guest off and bring it up anew", f"{_COMMANDS}.restart"),
        "boot": _one("have iPXE boot a guest over its HCA", f"{_COMMANDS}.boot"),
        "down": _one("end pairs, and wait until nothing of them is left", f"{_COMMANDS}.down"),
    },
    "look: what the devices hold and do": {
        "tour": _one(
            "see on live traffic what an RDMA adapter does", f"{_TOOLS}.tour.tour_command"
        ),
        "show": _beside("show what the devices of a guest hold now", "show"),
        "fingerprint": _one(
            "what software sees of a card, to hold against a real one",
            f"{_TOOLS}.fingerprint.fingerprint_command",
        ),
        "log": Subcommand(
            "show what crossed the bus",
            f"{_COMMANDS}.log",
            "bluebridge.host_tools.analyzer.log_command",
        ),
        "stats": _one("the counters of the device servers", f"{_COMMANDS}.stats"),
        "watch": _one("show what crosses the bus right now", f"{_TOOLS}.watch.watch_command"),
        "web": _beside("the lab, or a log, as a page in a browser", "web"),
        "mark": _one("put a note into the bus log, to find a moment again", f"{_COMMANDS}.mark"),
        "check": _one("hold the packets of a capture against RoCE's rules", f"{_COMMANDS}.check"),
        "mmiotrace": _one(
            "hold the guest kernel's own record against the log",
            f"{_TOOLS}.mmiotrace.mmiotrace_command",
        ),
    },
    "break: cables and adapters that fail": {
        "link": _one("pull the cable out of a guest's HCA, or plug it in", f"{_COMMANDS}.link"),
        "weather": _one("lose, delay, double, damage packets by chance", f"{_COMMANDS}.weather"),
        "fault": _one("break a guest's HCA, for its driver to mend", f"{_COMMANDS}.fault"),
        "atlas": _one("what stock programs make of each fault", f"{_TOOLS}.atlas.atlas_command"),
    },
    "measure: programs and times": {
        "krping": _beside("boot two guests and run krping between them", "krping"),
        "model": _one(
            "what a log's sends would take on real machines", f"{_TOOLS}.study.model_command"
        ),
        "sweep": _one(
            "latency against payload, with and without BlueFlame", f"{_TOOLS}.study.sweep_command"
        ),
        "ntb": _one("show a bridge between two guests at work", f"{_TOOLS}.ntb_demo"),
        "rtrs": _one(
            "a block device over RTRS between two guests, while paths die",
            f"{_TOOLS}.rtrs.rtrs_command",
        ),
        "ntrdma": _beside("RDMA through a bridge: shown, measured", "ntrdma"),
    },
    "build: this machine, modules, the shell": {
        "doctor": _one(
            "what this machine has, what is missing, what mends it", f"{_COMMANDS}.doctor"
        ),
        "kernel": _one("the guests' kernel: choose one, build one", f"{_COMMANDS}.kernel"),
        "bisect": _one(
            "the revision from which a command fails", f"{_COMMANDS}.bisect", passes_on=True
        ),
        "kmod": _one("build a module for the guest kernel", f"{_COMMANDS}.kmod", passes_on=True),
        "cache": _one("what set-up made, as one file for other machines", f"{_COMMANDS}.cache"),
        "image": _one("the lab as one container image", f"{_COMMANDS}.image"),
        "cc": _one("build a C program for the guests", f"{_COMMANDS}.cc", passes_on=True),
        "man": _one("the manual page", f"{_TOOLS}.man"),
        "completion": _one(
            "have the shell complete commands, options, guests", f"{_TOOLS}.completion"
        ),
    },
}
"""The groups of commands, in the order in which `--help` lists them."""
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
"""The commands by name."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; ends the program with status 2 when it is wrong.

    `command` is the command's name, `words` what it passes on; the rest are its own options.
    """
    words = list(words)
    if not words or words[0] not in COMMANDS:
        overview = _overview()
        overview.parse_args(words)  # ends the program: help, version, or a wrong command line
        overview.error("the first word is no command")
    name, *rest = words
    parser = parser_of(name)
    passed_on: list[str] = []
    if COMMANDS[name].passes_on:
        own = getattr(import_module(COMMANDS[name].options), "split", split)
        rest, passed_on = own(rest)
    options = parser.parse_args(rest)
    options.command, options.words = name, passed_on
    return options


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Split words at the first `--`: a command's own, and those that it passes on."""
    cut = words.index("--") if "--" in words else len(words)
    return words[:cut], words[cut + 1 :]


def parser_of(name: str) -> CommandParser:
    """Return the parser of a command with all its options."""
    command = COMMANDS[name]
    said = f"{command.help[0].upper()}{command.help[1:]}."
    parser = CommandParser(prog=f"bluebridge {name}", description=said)
    import_module(command.options).add_arguments(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Import the module of a parsed command, and only that, and run it; returns the exit status."""
    return int(import_module(COMMANDS[options.command].run).main(options))


def of_line(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of a line that is being typed, with the options of its command."""
    return _overview(words[0] if words and words[0] in COMMANDS else None)


def _listed() -> str:
    lines = []
    for title, group in GROUPS.items():
        lines += [title, *(f"  {name:12}{command.help}" for name, command in group.items()), ""]
    lines.append("`bluebridge COMMAND --help` says what a command takes.")
    return "\n".join(lines)


def _overview(chosen: str | None = None) -> argparse.ArgumentParser:
    """Return the parser that lists the commands; only `chosen` has its options."""
    parser = CommandParser(
        prog="bluebridge",
        usage="bluebridge [-h] [--version] COMMAND ...",
        description=f"{_DESCRIPTION}\n\n{_listed()}",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"bluebridge {bluebridge.__version__}"
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", help=argparse.SUPPRESS
    )
    for name, command in COMMANDS.items():
        parser_of_it = commands.add_parser(name, help=command.help)
        if name == chosen:
            import_module(command.options).add_arguments(parser_of_it)
    return parser
