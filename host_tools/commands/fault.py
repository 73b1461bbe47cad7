"""`bluebridge fault`: faults of a guest's HCA by name, and the list of those there are."""

from __future__ import annotations

import argparse
import json

from bluebridge.device import cards
from bluebridge.device.fabric.fault_words import DRIVEN
from bluebridge.device.layout.faults import FLAG, ONCE, PARAMETERS, Layer
from bluebridge.device.layout.mlx4.faults import BY_NAME, FAULTS
from bluebridge.device.layout.mlx5 import faults as mlx5
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.keeper import guests
from bluebridge.host_tools.keeper.guests import Guest

LIST = "list"
ARMED = "armed"
CLEAR = "clear"
_TABLES = {cards.CONNECTX3.name: BY_NAME, cards.CONNECTX5.name: mlx5.BY_NAME}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Arm a fault by name in a guest's HCA, bridge or DMA engine: `bluebridge fault list` shows "
        "all. "
        "`bluebridge fault GUEST armed` shows those in force, `clear` ends them or one of them. "
        "Without a name the HCA stops and fills its error buffer until it is reset (device-fatal): "
        "the kernel's driver, if it has the HCA, notices within five seconds, resets it and starts "
        "anew."
    )
    parser.add_argument("guest", metavar="GUEST", help=f"the guest, or `{LIST}`")
    parser.add_argument("name", nargs="?", default="", help=f"a fault, `{ARMED}` or `{CLEAR}`")
    parser.add_argument("number", nargs="?", default="", help="the armed fault to clear")
    parser.add_argument("--json", action="store_true", help=f"with `{LIST}` and `{ARMED}`: as JSON")
    group = parser.add_argument_group("parameters of faults")
    for name, (form, meaning) in PARAMETERS.items():
        if form == FLAG:
            group.add_argument(f"--{name}", action="store_const", const="1", help=meaning)
        else:
            group.add_argument(f"--{name}", metavar=form, help=meaning)


def main(options: argparse.Namespace) -> int:
    """Arm the fault or show the list; return 0 when it is done. Raises `LabError`."""
    if options.guest == LIST:
        print(json.dumps(_as_json()) if options.json else "\n".join(catalogue()))
        return 0
    if options.json and options.name != ARMED:
        raise UsageError("--json is for what is shown", f"use it with `{LIST}` or `{ARMED}`")
    given = ((name, getattr(options, name.replace("-", "_"))) for name in PARAMETERS)
    words = [f"{name}={value}" for name, value in given if value is not None]
    if options.number and options.name != CLEAR:
        raise UsageError(f"{options.number}: one word too many", "see `bluebridge fault --help`")
    for line in _act(guests.find_up(options.guest), options, words):
        print(line)
    return 0


def _as_json() -> list[dict[str, object]]:
    return [
        {
            "name": fault.name,
            "layer": fault.layer.value,
            "needs": list(fault.needs),
            "takes": list(fault.takes),
            "meaning": fault.meaning,
            "seen": fault.seen,
            "cards": [name for name, table in _TABLES.items() if fault.name in table],
        }
        for fault in FAULTS
    ]


def catalogue() -> list[str]:
    """Return the lines of the list of faults, in the order of the layers."""
    lines: list[str] = []
    for layer in Layer:
        lines += ["", f"{layer.value}:"] if lines else [f"{layer.value}:"]
        for fault in FAULTS:
            if fault.layer is layer:
                needs = "".join(f" --{name} {PARAMETERS[name][0]}" for name in fault.needs)
                takes = "".join(f" [--{name}]" for name in fault.takes)
                lines += [f"  {fault.name}{needs}{takes}", f"      {fault.meaning}"]
                lines.append(f"      seen as: {fault.seen}")
                if fault.name in mlx5.BY_NAME:
                    title, seen = cards.CONNECTX5.title, mlx5.BY_NAME[fault.name].seen
                    lines.append(f"      by a {title}'s driver: {seen}")
    return lines


def _act(guest: Guest, options: argparse.Namespace, words: list[str]) -> list[str]:
    hca, name = options.guest, options.name
    if name in (ARMED, CLEAR):
        if words:
            raise UsageError(f"{name} takes no parameters", f"leave {words[0]} out")
        if name == ARMED:
            armed = guest.tell(f"armed {hca}")
            return [json.dumps(armed)] if options.json else armed or [f"{hca}: no fault is armed"]
        guest.tell(f"disarm {hca} {options.number}".rstrip())
        which = f"fault {options.number} is" if options.number else "all faults are"
        return [f"{hca}: {which} over"]
    if name in ("", "device-fatal"):
        return _fatal(guest, options, words)
    if name not in BY_NAME:
        raise UsageError(f"there is no fault {name[:40]!r}", "`bluebridge fault list` shows all")
    answer = guest.tell(" ".join(["arm", hca, name, *words]))
    if BY_NAME[name].effect in ONCE:
        return [f"{hca}: {name}: done"]
    over = f"bluebridge fault {hca} clear {answer[0]}"
    return [f"{hca}: fault {answer[0]}, {name}, is armed; `{over}` ends it"]


def _fatal(guest: Guest, options: argparse.Namespace, words: list[str]) -> list[str]:
    if [word for word in words if not word.startswith("text=")]:
        raise UsageError("device-fatal takes --text only", f"leave {words[0]} out")
    (driver,) = guest.tell(f"fault {options.guest} {options.text or ''}".rstrip())
    lines = [f"guest {guest.name}: its HCA has failed until it is reset; {driver}"]
    if driver == DRIVEN:
        lines += [
            "the kernel's driver notices within seconds and starts anew",
            "a program that uses bluebridge.guest.verbs gets DeviceLost",
        ]
    return lines
