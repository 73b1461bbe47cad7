"""The report of a run: the table by kind, memory, the verdict."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bluebridge.host_tools.campaigns.soak.rounds import Round, Stock

MEMORY_BOUND = 2 * (1 << 20)
"""Bytes the server's memory may grow: what an allocator keeps back."""
FEWEST = 8
"""Rounds without which quarters say nothing."""
_MIB = 1 << 20


@dataclass(frozen=True)
class Growth:
    """The medians of the first and of the last quarter of the rounds."""

    first: float
    last: float
    bound: float

    @property
    def grown(self) -> float:
        """The difference of the last and the first."""
        return self.last - self.first

    @property
    def flat(self) -> bool:
        """Whether that is within the bound."""
        return self.grown <= self.bound


def growth(done: Sequence[Round], of: Callable[[Stock], int], bound: float) -> Growth | None:
    """Return how one of the server's stocks grew; None when there are too few rounds to say."""
    values = [of(found.stock) for found in done if found.stock is not None]
    if len(values) < FEWEST:
        return None
    quarter = len(values) // 4
    first, last = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
    return Growth(first, last, bound)


def memory(done: Sequence[Round]) -> Growth | None:
    """Bytes of the server's own memory."""
    return growth(done, lambda stock: stock.memory, MEMORY_BOUND)


def files(done: Sequence[Round]) -> Growth | None:
    """Return the growth of the server's open files: none may stay."""
    return growth(done, lambda stock: stock.files, 0)


def kinds(done: Sequence[Round]) -> list[tuple[str, int, float]]:
    """Each kind, how many times it was done, its median seconds."""
    found: dict[str, list[float]] = defaultdict(list)
    for each in done:
        found[each.kind].append(each.seconds)
    return [(kind, len(seconds), statistics.median(seconds)) for kind, seconds in found.items()]


def table(done: Sequence[Round]) -> str:
    """The kinds as a table of Markdown, those done most often first."""
    rows = [
        f"| {kind} | {times} | {seconds:.1f} s |"
        for kind, times, seconds in sorted(kinds(done), key=lambda row: (-row[1], row[0]))
    ]
    return "\n".join(["| what | times | median |", "|---|---|---|", *rows])


def stocks(done: Sequence[Round]) -> list[str]:
    """Return what became of the server's stocks, a line for each."""
    if (bytes_ := memory(done)) is None or (open_ := files(done)) is None:
        return [f"memory: {FEWEST} rounds at least are needed to judge it"]
    return [
        f"memory of the device server: {bytes_.first / _MIB:.2f} MiB in the first quarter, "
        f"{bytes_.last / _MIB:.2f} MiB in the last (medians): {bytes_.grown / _MIB:+.2f} MiB, "
        f"{_judged(bytes_)} (bound {bytes_.bound / _MIB:g} MiB)",
        f"its open files: {open_.first:g}, then {open_.last:g}: {_judged(open_)}",
    ]


def _judged(found: Growth) -> str:
    return "flat" if found.flat else "GROWS"


def passed(done: Sequence[Round]) -> bool:
    """Whether nothing failed and nothing grew."""
    found = (memory(done), files(done))
    failed = any(each.failures for each in done)
    return bool(done) and not failed and all(each is None or each.flat for each in found)
