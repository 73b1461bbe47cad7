"""The table of the atlas on a terminal and the tables of docs/atlas.md: outcomes, statuses, events.

Which statuses and events a driver of a ConnectX-3 can report: Linux `infiniband/hw/mlx4/cq.c:
mlx4_ib_handle_error_cqe`, `mlx4/eq.c: mlx4_eq_int`, `ib/mad.c: handle_port_mgmt_change_event`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from bluebridge.device.layout.mlx4.faults import FAULTS
from bluebridge.host_tools.atlas.outcome import CLEAN, CRASHED, EVENTS, HUNG, SURVIVED, WC, Row

_RD = "of reliable datagrams (RD), which no adapter and no driver has"
IMPOSSIBLE = {
    "IBV_WC_LOC_EEC_OP_ERR": _RD,
    "IBV_WC_LOC_RDD_VIOL_ERR": _RD,
    "IBV_WC_REM_INV_RD_REQ_ERR": _RD,
    "IBV_WC_INV_EECN_ERR": _RD,
    "IBV_WC_INV_EEC_STATE_ERR": _RD,
    "IBV_WC_FATAL_ERR": "the ConnectX-3 has no syndrome for it; libmlx4 never reports it",
    "IBV_WC_RESP_TIMEOUT_ERR": "the kernel's MAD layer makes it up; no adapter reports it",
    "IBV_EVENT_SM_CHANGE": "mlx4_ib never dispatches it",
    "IBV_EVENT_WQ_FATAL": "of work queues of mlx5",
}
"""Statuses and events that this adapter cannot produce, with the reason."""
NAMES = (*(f"IBV_WC_{name}" for name in WC[1:]), *(f"IBV_EVENT_{name}" for name in EVENTS))


def produced_by(name: str) -> list[str]:
    """Return the names of the faults that lead to a status or an event by themselves."""
    words = {name, name.removeprefix("IBV_WC_")}
    return [fault.name for fault in FAULTS if words & {*re.split(r"[ ,;]+", fault.seen)}]


def statuses(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Return name, faults or reason, and the programs that reported it, of all."""
    found = []
    for name in NAMES:
        word = name.replace("IBV_WC_", "wc ").replace("IBV_EVENT_", "event ")
        programs = dict.fromkeys(row.program for row in rows if word in row.seen.split(", "))
        how = ", ".join(f"`{fault}`" for fault in produced_by(name))
        reason = f"impossible: {IMPOSSIBLE[name]}" if name in IMPOSSIBLE else how
        found.append((name, reason, ", ".join(programs) or "-"))
    return found


_HEAD = (
    "fault", "program", "produced", "seen as", "status", "outcome", "recovered", "kernel"
)  # fmt: skip
_KERNEL_LETTERS = 90
_HEADING = (
    "# The atlas: what RDMA software makes of faults\n\nIts words: docs/atlas.md of bluebridge.\n"
)
_BEGINS = "## Survival"
"""The first heading of what a run writes; what stands before it in the file stays."""


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


def page(rows: Sequence[Row], old: str = "") -> str:
    """Return the text of docs/atlas.md; what the text `old` has before its tables stays."""
    head = f"{old.partition(_BEGINS)[0].rstrip()}\n" if _BEGINS in old else _HEADING
    programs = list(dict.fromkeys(row.program for row in rows))
    parts = (_survival(rows, programs), _coverage(rows), _details(rows))
    return "\n".join([head, *(line for part in parts for line in (*part, ""))])


def _coverage(rows: Sequence[Row]) -> list[str]:
    """Return a line for each status and event: how it is produced, which program reported it."""
    head = ("status or event", "produced by", "reported by")
    lines = [_line(head), _line(["---"] * len(head))]
    return ["## Statuses and events", "", *lines, *map(_line, statuses(rows))]


def _survival(rows: Sequence[Row], programs: Sequence[str]) -> list[str]:
    """Return the table of outcomes: a line for each fault, a column for each program."""
    lines = [_BEGINS, "", _line(["fault", *programs]), _line(["---"] * (len(programs) + 1))]
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
