"""Network interfaces over NTRDMA in both guests, for the length of a `with` block."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bluebridge.host_tools.agent.guest_command import Command
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.pair import Pair

ADDRESSES = ("10.9.2.1", "10.9.2.2")
PROGRAM = ("python3", "-m", "bluebridge.guest.protocols.ntrdma", "ethernet")
_LIMIT = 3600.0
_START_SECONDS = 60
_COUNTERS = re.compile(
    r"sent (?P<sent>\d+) frames \(\d+ bytes\) in (?P<bursts>\d+) bursts, (?P<unsent>\d+) dropped; "
    r"received (?P<received>\d+) \(\d+ bytes\), (?P<lost>\d+) dropped"
)


@dataclass
class Interfaces:
    """The interfaces of both guests; their counters are known after the `with` block."""

    counters: list[str] = field(default_factory=list)
    """The last line of output of each interface's program, guest a's first."""

    def numbers(self, guest: int) -> dict[str, int]:
        """Return the frames `sent` in `bursts`, `received`, `unsent` and `lost` of guest 0 or 1.

        Raises `LabError` when the program printed no counters.
        """
        found = _COUNTERS.search(self.counters[guest])
        if found is None:
            raise LabError(f"no counters: {self.counters[guest]}")
        return {name: int(text) for name, text in found.groupdict().items()}


@contextmanager
def interfaces(pair: Pair, back_end: str, mtu: int) -> Iterator[Interfaces]:
    """Make interfaces with `ADDRESSES` that reach each other; remove them at the end of the block.

    Raises `LabError`.
    """
    both = Interfaces()
    programs = [
        machine.agent.start(_line(address, ntrdma.word(back_end, serves=serves), mtu), _LIMIT)
        for machine, address, serves in zip(pair.machines, ADDRESSES, (True, False), strict=True)
    ]
    try:
        _meet(pair, programs)
        yield both
    except BaseException:
        for program in programs:
            program.kill()
        raise
    both.counters += [_end(program) for program in programs]


def _line(address: str, back_end: str, mtu: int) -> list[str]:
    return [*PROGRAM, "--address", f"{address}/24", "--backend", back_end, "--mtu", str(mtu)]


def _meet(pair: Pair, programs: list[Command]) -> None:
    """Wait until one reaches the other; programs that have failed say why."""
    ping = f"until ping -c 1 -W 1 {ADDRESSES[0]} > /dev/null 2>&1; do sleep 0.1; done"
    line = shlex.join(["timeout", str(_START_SECONDS), "sh", "-c", ping])
    if pair.b.run(line, timeout=2 * _START_SECONDS, check=False).status == 0:
        return
    for program in programs:
        program.signal(signal.SIGTERM)
    for program in programs:
        done = program.wait()
        if done.status:
            raise program.failed(done)
    raise LabError("the interfaces over NTRDMA do not reach each other", f"read {pair.logs}")


def _end(program: Command) -> str:
    """End a program; its last line."""
    program.signal(signal.SIGTERM)
    done = program.wait()
    if done.status:
        raise program.failed(done)
    return done.text.splitlines()[-1]
