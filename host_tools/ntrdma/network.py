"""Network interfaces over NTRDMA in both guests of a pair."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.programs.running import Running

ADDRESSES = ("10.9.2.1", "10.9.2.2")
PROGRAM = ("python3", "-m", "bluebridge.guest.ntrdma", "ethernet")
_PROGRAM_SECONDS = 3600.0
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
    with ExitStack() as owned:
        programs = []
        for machine, address, serves in zip(pair.machines, ADDRESSES, (True, False), strict=True):
            word = ntrdma.word(back_end, serves=serves)
            words = ["--address", f"{address}/24", "--backend", word, "--mtu", str(mtu)]
            program = Running(machine, [*PROGRAM, *words], _PROGRAM_SECONDS)
            programs.append(owned.enter_context(program))
        met = f"ping -c 1 -W 1 {ADDRESSES[0]} > /dev/null 2>&1"
        line = f"for try in $(seq {_START_SECONDS}); do {met} && exit; sleep 0.5; done; exit 1"
        reached = not pair.b.run(line, timeout=3 * _START_SECONDS, check=False).status
        if reached:
            yield both
        for program in programs:
            program.stop()
        both.counters += [program.succeeded().splitlines()[-1] for program in programs]
        if not reached:
            what = "the interfaces over NTRDMA do not reach each other"
            raise LabError(what, f"read {pair.logs}")
