"""`bluebridge fault`: an internal error of a guest's HCA."""

from __future__ import annotations

import argparse

from bluebridge.host_tools.commands import device_server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = (
        "Inject an internal error: the HCA stops and fills its error buffer. mlx4_core "
        "notices within five seconds, resets the device and starts anew."
    )
    parser.add_argument("guest", metavar="GUEST")
    parser.add_argument(
        "text", nargs="?", default="", help="what the error buffer says, 60 letters"
    )


def main(options: argparse.Namespace) -> int:
    """Break the adapter; returns 0 when it is done. Raises `LabError`."""
    guest = device_server.find(options.guest)
    device_server.tell(guest, f"fault {guest.name} {options.text}".rstrip())
    print(f"guest {guest.name}: its HCA has failed; its driver notices within 5 s")
    return 0
