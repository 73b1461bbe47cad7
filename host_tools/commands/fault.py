"""`bluebridge fault`: injects an internal error into a guest's HCA."""

from __future__ import annotations

import argparse

from bluebridge.device.fabric.fault_words import DRIVEN
from bluebridge.device.layout.mlx4.bar0 import CATAS_LETTERS
from bluebridge.host_tools.commands import device_server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Inject an internal error: the HCA stops and fills its error buffer until it is reset. "
        "mlx4_core, if it drives the HCA, notices within five seconds, resets it and starts anew."
    )
    parser.add_argument("guest", metavar="GUEST")
    parser.add_argument(
        "text", nargs="?", default="", help=f"what the error buffer says, {CATAS_LETTERS} letters"
    )


def main(options: argparse.Namespace) -> int:
    """Inject the internal error; return 0 when it is done. Raises `LabError`."""
    guest = device_server.find(options.guest)
    (driver,) = device_server.tell(guest, f"fault {guest.name} {options.text}".rstrip())
    print(f"guest {guest.name}: its HCA has failed until it is reset; {driver}")
    if driver == DRIVEN:
        print("mlx4_core notices within 5 s and starts anew")
        print("a program that uses bluebridge.guest.verbs gets DeviceLost")
    return 0
