"""`bluebridge fingerprint`: what software can see of a guest's card, as text; two of them compared.

In the guest runs the very script that owners of a real card run, so that both texts
are made by the same words. Registers are added by the lab, as no program of a guest reads them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

from bluebridge.host_tools.agent import Agent
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.fingerprint import document
from bluebridge.host_tools.fingerprint.comparison import Comparison, compare
from bluebridge.host_tools.fingerprint.document import FormatError, Sections
from bluebridge.host_tools.keeper import guests
from bluebridge.host_tools.show.registers import REGS
from bluebridge.host_tools.show.show_command import ask
from bluebridge.printable import printable

SCRIPT, ERRORS = "fingerprint.sh", "fingerprint_errors.py"
FOLDER = "/tmp/bluebridge-fingerprint"
"""The folder of the script in the guest."""
_SECONDS = 600.0

_MOVING = (
    *("INIT.cmdq_addr_h", "INIT.cmdq_addr_l_sz", "INIT.internal_timer_h", "INIT.internal_timer_l"),
    *("INIT.health_counter", "INIT.real_time_h", "INIT.real_time_l", "HEALTH.time"),
)
"""Registers left out, as they differ by moment; those of the HCR hold the last command."""

_RUN = f"""
before=$(ip -o -4 addr show scope global | awk '$2 ~ /^e/ {{ print $4 }}')
sh {FOLDER}/{SCRIPT} "$@" || exit 1
[ "$1" = --reload ] || exit 0
driver=$(ls -d /sys/bus/pci/drivers/mlx*_core/*:* | head -n 1 | sed 's|.*/\\(mlx.\\)_core/.*|\\1|')
bluebridge-$driver $before 2>&1 > /dev/null
"""
"""Runs the script; loads what --reload left out and gives the addresses back."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Print what software sees of a guest's first card: configuration space, sysfs, "
        "ibv_devinfo, ethtool, devlink, vendor syndromes of failed work requests, registers; with "
        "--reload its capabilities. The same card gives the same text. docs/fingerprint.md has "
        "the script that prints the same of a real card."
    )
    parser.add_argument("guest", metavar="GUEST", nargs="?", help="whose card")
    parser.add_argument(
        "--from", type=Path, metavar="FILE", dest="taken", help="a fingerprint instead of a guest's"
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="unbind the driver and bind it again, for the capabilities: connections end",
    )
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="name each difference to the fingerprint in FILE; status 1 if there is one",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def main(options: argparse.Namespace) -> int:
    """Print a fingerprint, or how it differs; returns 1 for differences. Raises `LabError`."""
    if (options.guest is None) == (options.taken is None):
        raise UsageError("name a guest, or a file with --from", "one of both")
    if options.taken is not None and options.reload:
        raise UsageError("--reload: there is no guest to reload", "name a guest, without --from")
    theirs = None if options.compare is None else document.load(options.compare)
    ours = document.load(options.taken) if options.taken else take(options.guest, options.reload)
    if theirs is None:
        text = map(printable, document.lines(ours))
        print(json.dumps(ours, indent=2) if options.json else "\n".join(text))
        return 0
    found = compare(ours, theirs)
    names = str(options.taken or options.guest), str(options.compare)
    if options.json:
        print(json.dumps(asdict(found), indent=2))
    else:
        print("\n".join(map(printable, told(found, *names))))
    return 1 if found.differences else 0


def told(found: Comparison, ours: str, theirs: str) -> Iterator[str]:
    """Yield a line for each difference and each section that one side lacks, then the count."""
    for each in found.differences:
        yield f"{each.section}: {each.what}: {each.ours} in {ours}, {each.theirs} in {theirs}"
    for section, one, other in found.apart:
        yield f"{section}: not compared: {one} in {ours}, {other} in {theirs}"
    count = len(found.differences)
    yield "no difference" if not count else f"{count} difference{'s' if count > 1 else ''}"


def take(name: str, reload: bool) -> Sections:
    """Return the fingerprint of the first card of a running guest. Raises `LabError`."""
    guest = guests.find_up(name)
    with guest.agent() as agent:
        taken = _script(agent, guest.called, reload)
    answer = ask(guest.tell, name, REGS, None)
    taken["registers"] = {
        item["register"]: item["value"]
        for item in answer.items
        if item["function"] == name
        and item["register"] not in _MOVING
        and not item["register"].startswith("HCR.")
    }
    return taken


def _script(agent: Agent, called: str, reload: bool) -> Sections:
    agent.run(["mkdir", "-p", FOLDER], check=True)
    for each in (SCRIPT, ERRORS):
        agent.put(Path(str(files(__package__) / each)), f"{FOLDER}/{each}")
    words = ["sh", "-c", _RUN, "sh", *(["--reload"] if reload else [])]
    done = agent.run(words, _SECONDS)
    if done.status:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
        raise LabError(f"{called}: {last}", "`bluebridge up` gives guests a card with its driver")
    try:
        return document.parse(done.stdout.decode(errors="replace"))
    except FormatError as error:
        raise LabError(f"{called}: {error}", "read what fingerprint.sh prints there") from None
