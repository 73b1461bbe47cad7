"""`bluebridge link` and `bluebridge fault`: a person's hands on the hardware of a guest."""

from __future__ import annotations

import argparse
from pathlib import Path

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper import guests
from bluebridge.host_tools.lab import hardware_control


def main(options: argparse.Namespace) -> int:
    """Pull or plug the cable of a port, or break the adapter; returns 0 when it is done."""
    guest = guests.find(options.guest)
    guest.check()
    if not guest.record.agents:
        raise LabError(f"guest {guest.name} is not up yet", "wait for `bluebridge up`")
    path = Path(guest.record.agents[0]).parent / hardware_control.SOCKET
    if options.command == "link":
        hardware_control.tell(path, f"link {guest.name}/{options.port} {options.state}")
        print(f"guest {guest.name}: port {options.port}: cable {_CABLE[options.state]}")
    else:
        hardware_control.tell(path, f"fault {guest.name} {options.text}".rstrip())
        print(f"guest {guest.name}: its HCA has failed; its driver notices within 5 s")
    return 0


_CABLE = {"up": "plugged in", "down": "pulled out"}
