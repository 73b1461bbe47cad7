"""Tables of command-line options: a frozen dataclass whose fields are the options.

A field made by `option` has the option's default, help and how its text is read. From the table
follow the declaration for `argparse` (`add_arguments`), the values of a parsed command line
(`of_arguments`) and the words that say the same to another process (`words`).

The kind of a default is the kind of the option: False makes a flag, a tuple an option that may be
given several times, anything else an option with one value.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Protocol, TypeVar

_OPTION = "option"
"""Key of the `Option` in a field's metadata."""


@dataclass(frozen=True, slots=True)
class Option:
    """The form of an option on the command line."""

    help: str
    choices: tuple[Any, ...] | None = None
    metavar: str | None = None
    read: Callable[[str], Any] = str
    """Converts text to a value; raises `argparse.ArgumentTypeError` or `ValueError`."""


class Table(Protocol):
    """A frozen dataclass whose fields were all made by `option`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


_T = TypeVar("_T", bound=Table)


def option(default: Any, text: str, **more: Any) -> Any:
    """Make a field of a table: its default, its help, and other fields of `Option`."""
    return field(default=default, metadata={_OPTION: Option(text, **more)})


def flag(name: str) -> str:
    """Write the field `name` as a command line has it: `--blueflame-size`."""
    return f"--{name.replace('_', '-')}"


def _chosen(table: type[Table], names: Collection[str] | None) -> list[Field[Any]]:
    return [each for each in fields(table) if names is None or each.name in names]


def add_arguments(
    table: type[Table], parser: argparse._ActionsContainer, names: Collection[str] | None = None
) -> None:
    """Declare the options of `names`, or all; one that is not given is None after parsing."""
    for each in _chosen(table, names):
        how: Option = each.metadata[_OPTION]
        if each.default is False:
            parser.add_argument(flag(each.name), action="store_true", default=None, help=how.help)
        else:
            parser.add_argument(
                flag(each.name),
                action="append" if isinstance(each.default, tuple) else "store",
                type=how.read,
                choices=how.choices,
                metavar=how.metavar,
                help=how.help,
            )


def given(
    table: type[Table], arguments: argparse.Namespace, names: Collection[str] | None = None
) -> dict[str, Any]:
    """Return the options that a parsed command line names, by field, in the order of the fields."""
    found = {each.name: getattr(arguments, each.name) for each in _chosen(table, names)}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in found.items()
        if value is not None
    }


def of_arguments(
    table: type[_T], arguments: argparse.Namespace, names: Collection[str] | None = None
) -> _T:
    """Make the options from a parsed command line; options that it lacks have their defaults."""
    return table(**given(table, arguments, names))


def changed(options: Table) -> dict[str, Any]:
    """Return the options that differ from their defaults, by field."""
    values = {each.name: getattr(options, each.name) for each in fields(options)}
    return {
        each.name: values[each.name]
        for each in fields(options)
        if values[each.name] != each.default
    }


def words(options: Table) -> list[str]:
    """Write the options that differ from their defaults as words of a command line."""
    return [word for name, value in changed(options).items() for word in _words(flag(name), value)]


def _words(word: str, value: Any) -> list[str]:
    if value is True:
        return [word]
    values = value if isinstance(value, tuple) else (value,)
    return [each for one in values for each in (word, str(one))]


def pairs(option: str, text: str, *keys: str) -> dict[str, str]:
    """Return the values of `name=a,socket=PATH`, of which these two must be there.

    A comma ends a value only where another key follows, since a path may hold commas. Raises
    `ValueError` with one line.
    """
    known = ", ".join(f"{key}=" for key in keys)
    values: dict[str, str] = {}
    for part in re.split(f",(?=(?:{'|'.join(keys)})=)", text):
        key, _, value = part.partition("=")
        if key not in keys or not value:
            raise ValueError(f"{option} {text}: {part!r} is not one of {known}")
        values[key] = value
    if not {"name", "socket"} <= values.keys():
        raise ValueError(f"{option} {text}: name= and socket= are needed")
    if "," in values["name"]:
        raise ValueError(f"{option} {text}: no comma in a name; the keys are {known}")
    return values
