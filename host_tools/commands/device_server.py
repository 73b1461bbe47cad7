"""Sends orders of the commands `link` and `fault` to the device server of a guest's pair."""

from __future__ import annotations

from pathlib import Path

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper import guests
from bluebridge.host_tools.keeper.guests import Guest
from bluebridge.host_tools.lab import hardware


def find(name: str) -> Guest:
    """Return the running guest called `name`, or the one that has the HCA `name`.

    Raises `LabError` when there is none or it is not up.
    """
    guest = guests.find(name.partition(".")[0])
    guest.check()
    if not guest.record.agents:
        raise LabError(f"guest {guest.name} is not up yet", "wait for `bluebridge up`")
    return guest


def tell(guest: Guest, line: str) -> list[str]:
    """Have the server of the guest's pair carry out a line of `bluebridge.device.server.control`.

    Returns the lines of its answer. Raises `LabError`, `UsageError` with the server's objection.
    """
    folder = Path(guest.record.agents[0]).parent
    return hardware.tell(folder / hardware.SOCKET, line)
