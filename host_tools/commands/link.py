"""`bluebridge link`: the cable of a guest's HCA, and faults of its link."""

from __future__ import annotations

import argparse
import json
import re

from bluebridge.device.fabric.fault_words import ACTIONS, VALUED, WORDS
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.keeper import guests
from bluebridge.host_tools.keeper.guests import Guest

_CABLE = {"up": "plugged in", "down": "pulled out"}
_OTHERS = {
    "rules": "the rules of the guest's links, with counts of the messages they matched",
    "release": "deliver what rule NUMBER holds or delays; it stays in force",
    "remove": "end rule NUMBER; what it keeps is delivered",
    "restore": "end all rules of the link",
}
_NUMBERED = ("release", "remove")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    lines = [f"  {name:10} {text}" for name, text in (ACTIONS | _OTHERS).items()]
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Pull the cable of a port (down), or plug it in again (up): the guest sees its link go.\n"
        "Or let messages of the link meet a fault, of which no guest is told:\n" + "\n".join(lines)
    )
    parser.add_argument(
        "guest",
        metavar="GUEST[/PORT]",
        help="a, or a/2 for its second port, a.1 for its second HCA",
    )
    parser.add_argument("action", metavar="ACTION", choices=(*_CABLE, *ACTIONS, *_OTHERS))
    parser.add_argument(
        "value",
        nargs="?",
        metavar="VALUE",
        help="milliseconds of delay and duplicate, HEADER.FIELD=VALUE of rewrite, Mb/s of rate, a "
        "rule's number",
    )
    parser.add_argument("--port", type=int, metavar="N", help="the same as GUEST/N (default 1)")
    parser.add_argument("--json", action="store_true", help="with `rules`: a JSON list of lines")
    group = parser.add_argument_group("which messages (of every action that takes some)")
    for word in WORDS:
        group.add_argument(f"--{word.name}", metavar=word.form, help=word.meaning)


def main(options: argparse.Namespace) -> int:
    """Carry out the action; returns 0 when it is done. Raises `LabError`."""
    name, _, port = options.guest.partition("/")
    if port and options.port is not None:
        raise UsageError("the port is said twice", f"write {options.guest} or --port, not both")
    guest = guests.find_up(name)
    number = port or (1 if options.port is None else options.port)
    for line in _act(guest, f"{name}/{number}", options):
        print(line)
    return 0


def _act(guest: Guest, link: str, options: argparse.Namespace) -> list[str]:
    action, value = options.action, options.value
    words = _words(options)
    if options.json and action != "rules":
        raise UsageError("--json is for what is shown", "use it with `rules`")
    if words and action not in ACTIONS:
        raise UsageError(f"{action} has no conditions", f"leave {words[0].split('=')[0]} out")
    if value is not None and action not in (*VALUED, *_NUMBERED):
        raise UsageError(f"{action} {value}: one word too many", "see `bluebridge link --help`")
    if action in _NUMBERED and not (value or "").isdecimal():
        mend = f"`bluebridge link {guest.name} rules` lists them"
        raise UsageError(f"{action} {value or ''}".rstrip() + ": which rule?", mend)
    if action in _CABLE:
        guest.tell(f"link {link} {action}")
        return [f"{guest.called}: port {link.partition('/')[2]}: cable {_CABLE[action]}"]
    if action == "rules":
        lines = guest.tell("rules")
        # The links of guest a are a/1, a.1/1 and so on.
        rules = [line for line in lines if re.split("[/.]", line.split()[1])[0] == guest.name]
        return [json.dumps(rules)] if options.json else rules
    if action == "restore":
        guest.tell(f"remove {link}")
        return [f"link {link}: no rules any more"]
    if action in _NUMBERED:
        guest.tell(f"{action} {value or ''}")
        return [f"rule {value}: {'released' if action == 'release' else 'removed'}"]
    timed = [] if value is None else [value]
    (number,) = guest.tell(" ".join([action, link, *timed, *words]))
    return [f"link {link}: rule {number}: {' '.join([action, *timed, *words])}"]


def _words(options: argparse.Namespace) -> list[str]:
    """Return the conditions in the form in which the control socket reads them."""
    given = ((word.name, getattr(options, word.name.replace("-", "_"))) for word in WORDS)
    return [f"{name}={value}" for name, value in given if value is not None]
