"""A program that runs in a guest beside others: what it prints, how it ends."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from bluebridge.host_tools.agent import CommandTimedOut
from bluebridge.host_tools.agent.guest_command import Completed
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine.vm import Vm

READY_SECONDS = 20.0
_END_SECONDS = 5.0
"""The seconds in which a program that is asked to end must do so."""


def wait_until(condition: str) -> str:
    """Return a shell line that ends when `condition` holds."""
    return f"until {condition}; do sleep 0.05; done"


@dataclass(frozen=True)
class Ended:
    """The end of a program: its exit status, None when its time ran out, and what it printed."""

    status: int | None
    output: str

    @property
    def last_words(self) -> str:
        """The last line that says something."""
        lines = [line.strip() for line in self.output.splitlines() if re.search(r"\w", line)]
        return lines[-1] if lines else "no output"


class Running:
    """A program in a guest, which is made to end with the block if not before."""

    def __init__(self, guest: Vm, line: str | Sequence[str], limit: float | None = None) -> None:
        """Start a shell line, or a list of words; the guest kills it after `limit` seconds.

        A signal ends a shell, too, whose status then says nothing of the program: who stops one and
        asks whether it succeeded gives a list. Raises `LabError`.
        """
        self._guest = guest
        self._command = guest.agent.start(line, limit)
        self.line = self._command.spelling
        self._said = {"stdout": bytearray(), "stderr": bytearray()}
        self._done: Completed | None = None
        self._trouble: LabError | None = None
        # A program whose output nobody takes stands still.
        self._taker = threading.Thread(target=self._take, daemon=True)
        self._taker.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _take(self) -> None:
        try:
            done = self._command.wait(lambda name, data: self._said[name].extend(data))
            self._done = replace(
                done, stdout=bytes(self._said["stdout"]), stderr=bytes(self._said["stderr"])
            )
        except LabError as error:
            self._trouble = error

    def until(self, condition: str, seconds: float = READY_SECONDS) -> None:
        """Wait until a shell condition holds in the guest. Raises `CommandTimedOut`."""
        self._guest.run(wait_until(condition), timeout=seconds)

    @property
    def output(self) -> str:
        """The text that it has printed so far: standard output, then standard error."""
        return b"".join(map(bytes, self._said.values())).decode(errors="replace")

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs, or if it was killed."""
        return None if self._done is None else self._done.status

    def wait(self, seconds: float | None = None) -> Ended | None:
        """Return its end, None if it still runs after `seconds`. Raises the guest's `LabError`."""
        self._taker.join(seconds)
        if self._taker.is_alive():
            return None
        if self._trouble is not None and not isinstance(self._trouble, CommandTimedOut):
            raise self._trouble
        return Ended(self.status, self.output)

    def succeeded(self) -> str:
        """Wait for its end; return what it printed. Raises `LabError` if it failed."""
        self._taker.join()
        if self._done is None:
            assert self._trouble is not None
            raise self._trouble
        if self._done.status:
            raise self._command.failed(self._done)
        return self.output

    def stop(self) -> None:
        """End it if it still runs: it is asked first."""
        self._end(partial(self._command.signal, signal.SIGTERM))
        self.kill()

    def kill(self) -> None:
        """Kill it, with all that it has started, if it still runs."""
        self._end(self._command.kill)

    def _end(self, act: Callable[[], None]) -> None:
        if self._taker.is_alive():
            with contextlib.suppress(LabError):
                act()
            self._taker.join(_END_SECONDS)
