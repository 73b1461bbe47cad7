"""Many lives of a side, each a process that is forked from one which has everything imported."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.protocols.ntrdma.survival.meeting import Lost
from bluebridge.guest.protocols.ntrdma.survival.visit import CLOSE, STOP, WORKING, Plan

HOLD = "hold"
"""The word for a `stop` that leaves the process standing: the machine is to be rebooted."""


def parse(word: str) -> tuple[PortState, str]:
    """`STATE:HOW`. Raises `ValueError`."""
    state, _, how = word.partition(":")
    if how not in (STOP, CLOSE, HOLD):
        raise ValueError(f"{word}: how to end is {STOP}, {CLOSE} or {HOLD}")
    return PortState(int(state)), how


def run(ends: list[tuple[PortState, str]], rounds: int, visit: Callable[[Plan], int]) -> None:
    """Ends, which are announced, and after each a life with an exchange that is right.

    That is the next one, if it ends in a state behind its exchange, or else a whole visit; there
    is one at the beginning too. Raises `Lost`.
    """
    recovering = True
    for state, how in ends:
        if recovering and state not in WORKING:
            _whole(rounds, visit)
        _end(state, how, rounds, visit)
        recovering = how != HOLD
        print(f"{int(state)}:{how}", flush=True)
    if recovering:
        _whole(rounds, visit)


def _whole(rounds: int, visit: Callable[[Plan], int]) -> None:
    _, status = os.waitpid(_fork(Plan(rounds=rounds), visit), 0)
    if status:
        raise Lost(f"a whole visit ended with {status:#x}")


def _end(state: PortState, how: str, rounds: int, visit: Callable[[Plan], int]) -> None:
    """A life that ends at a state."""
    child = _fork(Plan(state, CLOSE if how == CLOSE else STOP, rounds), visit)
    _, status = os.waitpid(child, os.WUNTRACED)
    if how == CLOSE:
        if status:
            raise Lost(f"a life that should have parted ended with {status:#x}")
        return
    if not os.WIFSTOPPED(status):
        raise Lost(f"a life that should have stopped ended with {status:#x}")
    if how == STOP:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _fork(plan: Plan, visit: Callable[[Plan], int]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = visit(plan)
        finally:
            os._exit(status)
    return child
