"""The table of the atlas on a terminal, and the page docs/atlas.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from bluebridge.device.layout.mlx4.faults import FAULTS
from bluebridge.host_tools.atlas import coverage
from bluebridge.host_tools.atlas.outcome import CLEAN, CRASHED, HUNG, SURVIVED, Row

_HEAD = (
    "fault", "program", "produced", "seen as", "status", "outcome", "recovered", "kernel"
)  # fmt: skip
_KERNEL_LETTERS = 90
_INTRODUCTION = """\
# The atlas: what RDMA software makes of faults

    bluebridge atlas                                  # every fault, where it shows most
    bluebridge atlas --minutes 28 --page FILE.md      # begins nothing behind 28 minutes
    bluebridge atlas --all --times 2                  # under all programs, twice: hours
    bluebridge atlas --only 'wc-*' --programs ibv_rc_pingpong
    bluebridge atlas --only 'hung-wr,cqe-*' --programs nvme-rdma --times 3 --json

Each fault of `bluebridge fault list` ([faults.md](faults.md#faults-of-the-adapter-by-name)) is
armed in guest a while an unmodified program runs there, the other side of it in guest b. Numbers of
queue pairs and completion queues are those of the running program; faults of commands are armed
before it starts. Each program has a pair of guests of its own, two of them at once (`--pairs`), and
guests in which something of it stays behind are started anew. This page is made by
`bluebridge atlas --page`; programs without a column were not run for it. Each cell was seen once,
unless it says ×2 or more, or two outcomes. A column can be run apart, beside others, and joined to
the page afterwards:

    bluebridge atlas --programs rping --json > rping.jsonl
    bluebridge atlas --rows rping.jsonl nvme-rdma.jsonl --page docs/atlas.md

| word | meaning |
|---|---|
| produced | how much the fault took, or 1 if it does not count |
| survived | the program ended with status 0 |
| clean error | it ended by itself with another status |
| hung | it had not ended when its time was over: 6 s, 15 s with fio, and then, \
while anything goes over the buses, up to four times what it takes without a fault; 75 s under \
`command-never` |
| crashed | a signal ended the program, or the guest's kernel panicked; the guest is started anew |
| - | not known: the run ended before this cell, or the machine was too busy to tell hung from \
slow; or the fault is none for the program, such as one of loading |
| not met | the program does nothing that the fault is about |
| no such queue | the program has no such queue, or had ended before it could be armed |
| recovered | messages passed between the guests after the fault was cleared, with the same guests |

Faults that are armed and take nothing cost little: of a WRITE's 3,214 byte codes in an interpreted
device server 64 faults of the adapter add none, 22 rules of the link 127.
"""


def table(rows: Iterable[Row]) -> list[str]:
    """Return the lines of the table with columns as wide as they need to be."""
    lines = [_HEAD, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row, in the order of the columns."""
    return (
        row.fault, row.program, str(row.produced), row.seen or "-", row.status, row.outcome,
        row.recovered, row.kernel[:_KERNEL_LETTERS] or "-",
    )  # fmt: skip


def page(rows: Sequence[Row]) -> str:
    """Return the text of docs/atlas.md."""
    programs = list(dict.fromkeys(row.program for row in rows))
    parts = (_survival(rows, programs), _coverage(rows), _details(rows))
    return "\n".join([_INTRODUCTION, *(line for part in parts for line in (*part, ""))])


def _coverage(rows: Sequence[Row]) -> list[str]:
    """Return a line for each status and event: how it is produced, which program reported it."""
    head = ("status or event", "produced by", "reported by")
    lines = [_line(head), _line(["---"] * len(head))]
    return ["## Statuses and events", "", *lines, *map(_line, coverage.lines(rows))]


def _survival(rows: Sequence[Row], programs: Sequence[str]) -> list[str]:
    """Return the table of outcomes: a line for each fault, a column for each program."""
    lines = ["## Survival", "", _line(["fault", *programs]), _line(["---"] * (len(programs) + 1))]
    met = {row.fault for row in rows}
    for fault in (each.name for each in FAULTS if each.name in met):
        found = []
        for program in programs:
            seen = Counter(r.outcome for r in rows if (r.fault, r.program) == (fault, program))
            found.append(", ".join(_times(*each) for each in seen.items()) or "-")
        lines.append(_line([f"`{fault}`", *found]))
    counts = [Counter(r.outcome for r in rows if r.program == program) for program in programs]
    for outcome in (SURVIVED, CLEAN, HUNG, CRASHED):
        lines.append(_line([f"all: {outcome}", *(str(count[outcome]) for count in counts)]))
    bad = [row for row in rows if row.recovered != "yes"]
    lines += ["", f"Runs: {len(rows)}; recovered without a restart: {len(rows) - len(bad)}."]
    return lines


def _times(outcome: str, count: int) -> str:
    return outcome if count == 1 else f"{outcome} ×{count}"


def _details(rows: Iterable[Row]) -> list[str]:
    """Return a line for each run that met its fault, identical ones once."""
    lines = ["## What was seen", "", _line(_HEAD), _line(["---"] * len(_HEAD))]
    met = [cells(row) for row in rows if row.produced]
    lines += [_line(cell.replace("|", "\\|") for cell in line) for line in dict.fromkeys(met)]
    return lines


def _line(words: Iterable[str]) -> str:
    return f"| {' | '.join(words)} |"
