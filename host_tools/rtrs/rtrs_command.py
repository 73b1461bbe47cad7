"""`bluebridge rtrs`: one module for each action."""

from __future__ import annotations

import argparse

from bluebridge.guest.providers import NTRDMA
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab.config import KERNEL
from bluebridge.host_tools.rtrs import demo, matrix

_ACTIONS = {"demo": demo.main, "matrix": matrix.main}


def main(options: argparse.Namespace) -> int:
    """Run the action of the command line; return its exit status. Raises `LabError`."""
    if options.provider == NTRDMA:
        _check_ntrdma(options)
    return _ACTIONS[options.action](options)


def _check_ntrdma(options: argparse.Namespace) -> None:
    """Raises `UsageError` for what it has no part in."""
    pairings = options.sides if options.action == "matrix" else [options.sides]
    if any(KERNEL in sides for sides in pairings or () if sides):
        raise UsageError("the kernel's RTRS does not know NTRDMA", "use --sides python")
    if options.hcas > 1:
        raise UsageError("--hcas is about paths over HCAs", "leave it out")
