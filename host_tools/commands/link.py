"""`bluebridge link`: pull the cable out of a guest's HCA, or plug it in."""

from __future__ import annotations

import argparse

from bluebridge.host_tools.commands import device_server

_CABLE = {"up": "plugged in", "down": "pulled out"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = (
        "Pull the cable of a port, or plug it in again: the guest sees its link go."
    )
    parser.add_argument("guest", metavar="GUEST")
    parser.add_argument("state", choices=tuple(_CABLE))
    parser.add_argument("--port", type=int, default=1, metavar="N", help="of two (default 1)")


def main(options: argparse.Namespace) -> int:
    """Set the cable of a port; returns 0 when it is done. Raises `LabError`."""
    guest = device_server.find(options.guest)
    device_server.tell(guest, f"link {guest.name}/{options.port} {options.state}")
    print(f"guest {guest.name}: port {options.port}: cable {_CABLE[options.state]}")
    return 0
