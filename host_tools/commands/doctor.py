"""`bluebridge doctor`: reports which requirements this machine meets and how to mend the others."""

from __future__ import annotations

import argparse

from bluebridge.device.server import sandbox
from bluebridge.images import doctor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object: `ok`, and `checks` with `name`, `ok`, `found`, `mend` of each",
    )


def main(options: argparse.Namespace) -> int:
    """Print the checks' results; return 0 if nothing is missing, else 1."""
    return doctor.main([_sandbox()], as_json=options.json)


def _sandbox() -> doctor.Check:
    """Return a check of the measures that confine a device server; none of them is necessary."""
    missing = sandbox.missing()
    held = [name for name in ("seccomp", "Landlock") if not any(name in line for line in missing)]
    found = ", ".join(["no new privileges"] * bool(held) + held + ["limits", *missing])
    installed = not any("not installed" in line for line in missing)
    return doctor.Check("sandbox", installed, found, "" if installed else "make setup")
