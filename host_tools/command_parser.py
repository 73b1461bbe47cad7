"""The parser of a command's own words, which reports an error and its remedy in one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

_UNKNOWN = "unrecognized arguments: "
_MISSING = "the following arguments are required: "
_CHOICES = re.compile(
    r"argument (?P<name>[^:]+): invalid choice: (?P<word>.*) \(choose from (?P<all>.*)\)"
)
_VALUE = re.compile(r"argument (?P<name>[^:]+): invalid (?:_*)(?P<kind>\w+) value: '(?P<word>.*)'")
_KINDS = {
    "int": "a whole number", "number": "a whole number", "count": "a whole number",
    "positive": "a whole number", "parse_mtu": "a number of bytes", "float": "a number",
    "seconds": "a number of seconds", "port": "a TCP port",
}  # fmt: skip


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
            return f"{message.removeprefix(_MISSING)} is missing; {self._help()}"
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
