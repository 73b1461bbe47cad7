"""`bluebridge restart`: a guest anew, at the same device server."""

from __future__ import annotations

import argparse

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper import control, guests, record
from bluebridge.host_tools.progress import Reporter


def main(options: argparse.Namespace) -> int:
    """Have the keeper restart a guest, whatever it is doing; returns 0 when it is up."""
    guest = guests.find(options.guest)
    if guest.pair.state != record.RUNNING:
        raise LabError(f"pair {guest.pair.number} is {guest.pair.state}", "try again in a moment")
    control.ask(guest.entry.control, {"restart": guest.name}, Reporter(quiet=options.quiet))
    print(f"guest {guest.name} is up again")
    return 0
