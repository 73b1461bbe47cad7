"""A Python program in this process, on the PCI functions of a side."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from bluebridge.guest.drivers.bus import machine
from bluebridge.host_tools.hosts.functions import HostFunction, HostMachine


def play(name: str, functions: Sequence[str], program: Sequence[str]) -> None:
    """Run `program`, the words that follow `python3`, as side `name`; ends as it ends.

    `functions` are the words of `HostFunction`.
    """
    machine.run_on(HostMachine(name, [HostFunction.parse(word) for word in functions]))
    if program[0] == "-m":
        sys.argv = list(program[1:])
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(program)
        sys.path.insert(0, str(Path(program[0]).resolve().parent))
        runpy.run_path(program[0], run_name="__main__")
