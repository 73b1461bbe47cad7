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
from bluebridge.guest.protocols.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.protocols.ntrdma.survival import lives
from bluebridge.guest.protocols.ntrdma.survival.meeting import Lost, WrongData
from bluebridge.guest.protocols.ntrdma.survival.stay import SERVER, Staying
from bluebridge.guest.protocols.ntrdma.survival.visit import CLOSE, STOP, Plan, Visit

Opener = Callable[[Sequence[Callable[[PortState], None]], str], NtrdmaDevice]
"""Opens the device of a back end, with those who are told the states of its port."""


def main(opener: Opener, arguments: list[str] | None = None) -> int:
    """0 when all went well, 1 with a line on standard error else."""
    given = _parser().parse_args(arguments)

    def visit(plan: Plan) -> None:
        Visit(plan).run(lambda watchers: opener(watchers, given.backend))

    match given.role:
        case "stay":
            return _reported(lambda: _stay(opener, given.backend))
        case "lives":
            return _reported(
                lambda: lives.run(
                    given.ends, given.rounds, lambda plan: _reported(lambda: visit(plan))
                )
            )
    at = None if given.at is None else PortState(given.at)
    return _reported(lambda: visit(Plan(at, given.then, given.rounds)))


def _reported(action: Callable[[], None]) -> int:
    try:
        action()
    except (DeviceError, OSError, MemoryError, Lost, WrongData) as error:
        print(f"survival: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _stay(opener: Opener, back_end: str) -> None:
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    with ExitStack() as owned:
        device = owned.enter_context(opener((), back_end))
        staying = Staying(device, open_connections(device, SERVER, owned))
        print("listening", flush=True)
        while not ended:
            staying.serve()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="survival", description=__doc__)
    parser.add_argument("role", choices=("stay", "visit", "lives"))
    parser.add_argument("--backend", default="", help="of NTRDMA")
    parser.add_argument("--at", type=int, choices=[*map(int, PortState)], help="end at this state")
    parser.add_argument("--then", choices=(STOP, CLOSE), default=CLOSE, help="how to end")
    parser.add_argument("--ends", type=lives.parse, nargs="*", default=[], help="STATE:HOW")
    parser.add_argument("--rounds", type=int, default=3, help="of writing, summing up and reading")
    return parser
