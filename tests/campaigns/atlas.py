"""`python -m tests.campaigns.atlas FILE ...`: docs/atlas.md anew, of what `bluebridge atlas` found.

Each FILE has the rows of a run of `bluebridge atlas --json`.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from bluebridge.device import cards
from bluebridge.device.layout.ibverbs import WC_STATUSES as WC
from bluebridge.host_tools.atlas.outcome import (
    CLEAN,
    CRASHED,
    EVENTS,
    HEAD,
    HUNG,
    SURVIVED,
    Row,
    cells,
)
from bluebridge.host_tools.atlas.programs import BY_NAME, FAULTS
from bluebridge.images.cache import HOME

PAGE = HOME / "docs" / "atlas.md"
_BEGINS, _CONNECTX5 = "## Survival", "## Survival on a ConnectX-5"
"""The first headings of what runs of a card write; what stands before them on the page stays."""


def main(files: Sequence[str]) -> int:
    """Write the page; exit status 2 when a file has something else than rows."""
    rows: list[Row] = []
    for file in files:
        for number, line in enumerate(Path(file).read_text().splitlines(), start=1):
            try:
                rows.append(Row(**json.loads(line)))
            except (TypeError, ValueError):
                print(f"{file}, line {number}, is no row of `atlas --json`", file=sys.stderr)
                return 2
    programs = list(BY_NAME)
    faults = {card: [fault.name for fault in table] for card, table in FAULTS.items()}
    rows.sort(key=lambda row: (programs.index(row.program), faults[row.card].index(row.fault)))
    PAGE.write_text(page(rows, PAGE.read_text()))
    return 0


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
    faults = FAULTS[cards.CONNECTX3.name]
    return [fault.name for fault in faults if words & {*re.split(r"[ ,;]+", fault.seen)}]


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


def page(rows: Sequence[Row], old: str) -> str:
    """Return the page `old` with these rows in its tables; those of a card without rows stay."""
    first, _, last = old.partition(f"{_CONNECTX5}\n")
    head, _, older = first.partition(f"{_BEGINS}\n")
    three, five = ([row for row in rows if row.card == name] for name in FAULTS)
    text = [f"{head.rstrip()}\n"]
    if three:
        for part in (_survival(three, _BEGINS), _coverage(three), _details(three)):
            text += [*part, ""]
    elif older:
        text += [_BEGINS, older.rstrip(), ""]
    if five:
        for part in (_survival(five, _CONNECTX5), _details(five, " on a ConnectX-5")):
            text += [*part, ""]
    elif last:
        text += [_CONNECTX5, last.rstrip(), ""]
    return "\n".join(text)


def _coverage(rows: Sequence[Row]) -> list[str]:
    """Return a line for each status and event: how it is produced, which program reported it."""
    head = ("status or event", "produced by", "reported by")
    lines = [_line(head), _line(["---"] * len(head))]
    return ["## Statuses and events", "", *lines, *map(_line, statuses(rows))]


def _survival(rows: Sequence[Row], heading: str) -> list[str]:
    """Return the table of outcomes: a line for each fault, a column for each program."""
    programs = list(dict.fromkeys(row.program for row in rows))
    lines = [heading, "", _line(["fault", *programs]), _line(["---"] * (len(programs) + 1))]
    met = {row.fault for row in rows}
    for fault in (each.name for each in FAULTS[rows[0].card] if each.name in met):
        found = []
        for program in programs:
            seen = Counter(r.outcome for r in rows if (r.fault, r.program) == (fault, program))
            times = (word if n == 1 else f"{word} ×{n}" for word, n in seen.items())
            found.append(", ".join(times) or "-")
        lines.append(_line([f"`{fault}`", *found]))
    counts = [Counter(r.outcome for r in rows if r.program == program) for program in programs]
    for outcome in (SURVIVED, CLEAN, HUNG, CRASHED):
        lines.append(_line([f"all: {outcome}", *(str(count[outcome]) for count in counts)]))
    bad = [row for row in rows if row.recovered != "yes"]
    lines += ["", f"Runs: {len(rows)}; recovered without a restart: {len(rows) - len(bad)}."]
    return lines


def _details(rows: Iterable[Row], where: str = "") -> list[str]:
    lines = [f"## What was seen{where}", "", _line(HEAD), _line(["---"] * len(HEAD))]
    met = [cells(row) for row in rows if row.produced]
    lines += [_line(cell.replace("|", "\\|") for cell in line) for line in dict.fromkeys(met)]
    return lines


def _line(words: Iterable[str]) -> str:
    return f"| {' | '.join(words)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
