"""`bluebridge boot GUEST --pxe`: iPXE boots a guest over its emulated HCA, from its peer."""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from bluebridge.host_tools.errors import LabError, Progress, Reporter, UsageError
from bluebridge.host_tools.keeper import control, guests, record
from bluebridge.host_tools.keeper.guests import Guest
from bluebridge.host_tools.lab.artefacts import network_boot_files


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Switch a guest off and boot it over its HCA: its firmware is iPXE, which gets an address "
        "and a boot script from the other guest, then a kernel and the guest's root. The pair is "
        "one of `bluebridge up --driver kernel`. See docs/ipxe.md."
    )
    parser.add_argument("guest", metavar="GUEST")
    parser.add_argument("--pxe", action="store_true", required=True, help="over the network")
    parser.add_argument(
        "--times",
        type=int,
        default=1,
        metavar="N",
        help="so many times, with a line for each, and how many came up",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def main(options: argparse.Namespace) -> int:
    """Boot the guest over the network; return 0 when it came up each time, 1 otherwise.

    Raises `LabError`.
    """
    if options.times < 1:
        raise UsageError(f"--times {options.times} asks for nothing", "give 1 or more")
    guest = guests.find(options.guest)
    guest.need_guest()
    progress = Reporter(quiet=options.quiet)
    _ask("may boot", guest, progress)  # before the download that a pair may have no use for
    network_boot_files(progress)  # here, not in the keeper: what is missing may take a while
    if options.times == 1:
        print(f"guest {guest.name} booted over its HCA in {_boot(guest, progress):.1f} s")
        return 0
    return _often(guest, options.times, progress)


def _boot(guest: Guest, progress: Progress) -> float:
    return float(_ask("boot", guest, progress)["seconds"])


def _ask(what: str, guest: Guest, progress: Progress) -> dict[str, Any]:
    if guest.pair.state != record.RUNNING:
        raise LabError(f"pair {guest.pair.number} is {guest.pair.state}", "try again in a moment")
    return control.ask(guest.entry.control, {what: guest.name}, progress)


def _often(guest: Guest, times: int, progress: Progress) -> int:
    """Boot the guest `times` times; report a boot that fails and go on with the next one."""
    took: list[float] = []
    for number in range(1, times + 1):
        try:
            seconds = _boot(guest, progress)
        except LabError as error:
            print(f"boot {number} of {times}: {error}", flush=True)
            continue
        took.append(seconds)
        print(f"boot {number} of {times}: {seconds:.1f} s", flush=True)
    spread = ""
    if took:
        spread = f"; {min(took):.1f} to {max(took):.1f} s, median {statistics.median(took):.1f} s"
    print(f"{len(took)} of {times} boots came up{spread}")
    return 0 if len(took) == times else 1
