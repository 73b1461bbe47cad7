"""Targets of fuzzing: a function of bytes for each part that reads what a guest or client wrote.

A target raises, or leaves an error in the log, when the part does not hold: a guest can cause
neither. `STALL_SECONDS` of processor time for one step of a guest are one, too.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from tests.fuzz import clients, guests, mutate, records, sockets
from tests.fuzz.machines import Adapters, Crossings, Mlx5Adapters
from tests.models.sockets import Requested

STALL_SECONDS = 0.25
"""Of processor time for one input of a target that does not time its calls: four times the most.

Targets of steps are held to `timed_host.STALL_SECONDS` for each call instead.
"""
COLLECT_EVERY = 64
"""Guests of 8 MiB are circular garbage, which a collector that counts objects hardly sees."""
_runs = count(1)
_ASKED_FOR = (Requested, PermissionError)
"""Errors that targets' models raise when a client asks for it, or accesses what it may not."""

TARGETS: dict[str, Callable[[bytes], None]] = {
    "hca": guests.target("hca", Adapters),
    "mlx5": guests.target("mlx5", Mlx5Adapters),
    "ntb": guests.target("ntb", Crossings),
    **clients.TARGETS,
    **records.TARGETS,
    **sockets.TARGETS,
}


class Finding(Exception):
    """An input that broke something without an exception of its own."""


class _Errors(logging.Handler):
    """Keeps what is logged as an error: the loop and the filters log exceptions and go on."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], _ASKED_FOR):
            return
        self.lines.append(record.getMessage() + str(record.exc_info or ""))


@contextmanager
def no_errors() -> Iterator[None]:
    """Raise `Finding` if the body logs an error."""
    handler = _Errors()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
    if handler.lines:
        raise Finding(handler.lines[0])


class Turn:
    """Runs of a target for `seconds`, which begin when it has had the `inputs` of its corpus.

    So a target of many inputs is fuzzed as long on a slow machine.
    """

    def __init__(self, name: str, inputs: int, seconds: float) -> None:
        self._name, self._seconds, self._end = name, seconds, float("inf")
        self.runs = -inputs
        """Of inputs that are new."""

    def run(self, data: bytes) -> None:
        """Give `data` to the target; raises whatever is found."""
        run(self._name, data)
        self.runs += 1
        if self.runs == 0:
            self._end = time.monotonic() + self._seconds

    @property
    def over(self) -> bool:
        """Whether the target had its time."""
        return self.runs > 0 and time.monotonic() >= self._end


def run(name: str, data: bytes) -> None:
    """Give `data` to the target `name`; raises whatever is found."""
    if not next(_runs) % COLLECT_EVERY:
        gc.collect()
    started = time.thread_time()
    gc.disable()
    try:
        with no_errors():
            TARGETS[name](data)
    finally:
        gc.enable()
    seconds = time.thread_time() - started
    if seconds > STALL_SECONDS and name not in mutate.FORMS:
        raise Finding(f"{name} computed for {seconds:.2f} s")
