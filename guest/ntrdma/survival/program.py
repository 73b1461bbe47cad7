"""The program of both roles; how to open the device is given to it."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.connections import open_connections
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.survival.meeting import Lost, WrongData
from bluebridge.guest.ntrdma.survival.stay import SERVER, Staying
from bluebridge.guest.ntrdma.survival.visit import CLOSE, STOP, Plan, Visit

Opener = Callable[[Sequence[Callable[[PortState], None]], str], NtrdmaDevice]
"""Opens the device of a back end, with those who are told the states of its port."""


def main(opener: Opener, arguments: list[str] | None = None) -> int:
    """0 when all went well, 1 with a line on standard error else."""
    given = _parser().parse_args(arguments)
    try:
        if given.role == "stay":
            return _stay(opener, given.backend)
        at = None if given.at is None else PortState(given.at)
        visit = Visit(Plan(at, given.then, given.rounds))
        visit.run(lambda watchers: opener(watchers, given.backend))
    except (DeviceError, OSError, Lost, WrongData) as error:
        print(f"survival: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _stay(opener: Opener, back_end: str) -> int:
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    with ExitStack() as owned:
        device = owned.enter_context(opener((), back_end))
        staying = Staying(device, open_connections(device, SERVER, owned))
        print("listening", flush=True)
        while not ended:
            staying.serve()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="survival", description=__doc__)
    parser.add_argument("role", choices=("stay", "visit"))
    parser.add_argument("--backend", default="", help="of NTRDMA")
    parser.add_argument("--at", type=int, choices=[*map(int, PortState)], help="end at this state")
    parser.add_argument("--then", choices=(STOP, CLOSE), default=CLOSE, help="how to end")
    parser.add_argument("--rounds", type=int, default=3, help="of writing, summing up and reading")
    return parser
