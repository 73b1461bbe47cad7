"""`bluebridge restart`: starts a guest again, at the same device server."""

from __future__ import annotations

import argparse

from bluebridge.host_tools.errors import LabError, Reporter
from bluebridge.host_tools.hosts import holder
from bluebridge.host_tools.keeper import control, guests, record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Bring a guest up anew, whether it still runs or has ended. Its devices come "
        "back as after a reset; its peer and the device server go on. Of a host the program that "
        "has its card is ended."
    )
    parser.add_argument("guest", metavar="GUEST")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def main(options: argparse.Namespace) -> int:
    """Have the keeper restart a guest in whatever state it is; return 0 when it is up.

    Raises `LabError`.
    """
    guest = guests.find(options.guest)
    if guest.pair.state != record.RUNNING:
        raise LabError(f"pair {guest.pair.number} is {guest.pair.state}", "try again in a moment")
    if guest.record.functions:
        for program in guest.record.programs():
            holder.end(program)
            print(f"{guest.called}: ended {program}")
        print(f"{guest.called}: no program has its card, which is as after a reset")
        return 0
    control.ask(guest.entry.control, {"restart": guest.name}, Reporter(quiet=options.quiet))
    print(f"guest {guest.name} is up again")
    return 0
