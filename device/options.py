"""Options of the device server that say how the hardware is, each in one place.

A field of `ServerOptions` is an option of `python -m bluebridge.device`: its name, default, help
and how its text is read stand in the field. `add_arguments` declares options for `argparse`,
`of_arguments` takes the values back, `words` writes them for whoever starts a server.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from dataclasses import Field, dataclass, field, fields
from typing import Any

from bluebridge.device.buslog.packing import CAPTURE
from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.hca.settings.config import BLUEFLAME_REGISTERS, MAX_PORTS, PLAIN


@dataclass(frozen=True, slots=True)
class Option:
    """How an option is written on a command line."""

    help: str
    choices: tuple[Any, ...] | None = None
    metavar: str | None = None
    read: Callable[[str], Any] = str
    """Text to value; raises `argparse.ArgumentTypeError` or `ValueError`."""


_OPTION = "option"
"""Key of the `Option` in a field's metadata."""


def _option(default: Any, text: str, **more: Any) -> Any:
    return field(default=default, metadata={_OPTION: Option(text, **more)})


def byte_count(text: str) -> int:
    """A number of bytes, 0 or more; raises `argparse.ArgumentTypeError`."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is no number of bytes, 0 or more")
    return int(text)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How all HCAs of a server are, and what it records.

    Values are not checked here: the server refuses wrong ones when it starts.
    """

    link: str = _option(
        LinkLayer.ETHERNET.value,
        "what the ports speak (default ethernet)",
        choices=tuple(link.value for link in LinkLayer),
    )
    sm: str = _option(
        "builtin",
        "who manages InfiniBand: the switch (builtin, default), or opensm in a guest (none)",
        choices=("builtin", "none"),
    )
    ports: int = _option(
        1,
        "ports of each HCA (default 1)",
        choices=tuple(range(1, MAX_PORTS + 1)),
        read=int,
    )
    blueflame: str = _option(
        "off",
        "advertise BlueFlame, sends without a doorbell (default off)",
        choices=("on", "off"),
    )
    blueflame_size: int = _option(
        PLAIN.blueflame_register,
        f"of a BlueFlame register, two buffers: {', '.join(map(str, BLUEFLAME_REGISTERS))} "
        f"(default {PLAIN.blueflame_register}); entries of at most half of it are sent through "
        "BlueFlame",
        choices=BLUEFLAME_REGISTERS,
        metavar="BYTES",
        read=int,
    )
    pro: bool = _option(False, "ConnectX-3 Pro: RoCE v2 as well as v1")
    large_cqes: bool = _option(False, "offer completion entries of 64 bytes")
    capture: int = _option(
        CAPTURE,
        f"what the log keeps of each transfer (default {CAPTURE}), and of each message on the wire "
        "if that is more than it keeps anyway",
        metavar="BYTES",
        read=byte_count,
    )
    trace: str = _option(
        "warning",
        "level of messages on stderr: debug, info, warning (default), error",
        choices=("debug", "info", "warning", "error"),
        metavar="LEVEL",
    )


DEFAULTS = ServerOptions()
"""What a server is that is told nothing."""


def flag(name: str) -> str:
    """The word on a command line of the field `name`: `--blueflame-size`."""
    return f"--{name.replace('_', '-')}"


def _chosen(names: Collection[str] | None) -> list[Field[Any]]:
    return [each for each in fields(ServerOptions) if names is None or each.name in names]


def add_arguments(parser: argparse._ActionsContainer, names: Collection[str] | None = None) -> None:
    """Declare the options of `names`, or all; one that is not given is None after parsing."""
    for each in _chosen(names):
        option: Option = each.metadata[_OPTION]
        if each.default is False:
            parser.add_argument(
                flag(each.name), action="store_true", default=None, help=option.help
            )
        else:
            parser.add_argument(
                flag(each.name),
                type=option.read,
                choices=option.choices,
                metavar=option.metavar,
                help=option.help,
            )


def given(arguments: argparse.Namespace, names: Collection[str] | None = None) -> dict[str, Any]:
    """The options that a parsed command line names, by field, in the order of the fields."""
    found = {each.name: getattr(arguments, each.name) for each in _chosen(names)}
    return {name: value for name, value in found.items() if value is not None}


def of_arguments(
    arguments: argparse.Namespace, names: Collection[str] | None = None
) -> ServerOptions:
    """The options of a parsed command line; what it does not name has its default."""
    return ServerOptions(**given(arguments, names))


def words(options: ServerOptions) -> list[str]:
    """Arguments of `python -m bluebridge.device`: each option that differs from its default."""
    found: list[str] = []
    for each in fields(options):
        value = getattr(options, each.name)
        if value == each.default:
            continue
        found += [flag(each.name)] if each.default is False else [flag(each.name), str(value)]
    return found
