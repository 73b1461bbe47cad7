"""Judges the texts of a program and of the kernel under a fault: pure functions."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from bluebridge.device import cards
from bluebridge.device.layout.ibverbs import WC_STATUSES as WC

SURVIVED, CLEAN, HUNG, CRASHED = "survived", "clean error", "hung", "crashed"
NOT_MET, NO_QUEUE = "not met", "no such queue"
EVENTS = (
    "CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED", "PATH_MIG",
    "PATH_MIG_ERR", "DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE",
    "SM_CHANGE", "SRQ_ERR", "SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED", "CLIENT_REREGISTER",
    "GID_CHANGE", "WQ_FATAL",
)  # fmt: skip
"""The names of `enum ibv_event_type`, by number."""

_STATUS = re.compile(
    r"[Ff]ailed status[^(]*\((?P<wc>\d+)\)|Failed status (?P<perftest>\d+)"
    r"|[Cc]ompletion failed with status (?P<cq>\d+)|status (?P<cm>\d+) opcode"
)
_EVENT = re.compile(r"^event (?P<number>\d+)$|event_type (?P<watch>[\w /-]+?)(?: \(\d+\))?$", re.M)
_KERNEL_WC = re.compile(
    r"(?:WR failed|error|status)[^\n]*?: (?P<text>[a-z][a-z -]+(?:error|flushed))"
)
_KERNEL = re.compile(
    r"mlx[45]|infiniband|nvme|rtrs|rnbd|ib_|rdma|BUG|WARN|Call Trace|blocked", re.I
)
_LEVEL = re.compile(r"<(\d+)>(?:\[[^]]*\] )?(.*)")
_WORST_LEVEL = 4
_SIGNALS = (129, 192)
"""The first and last status with which a shell says that a signal ended a program."""
_BACKTRACE = re.compile(r"\+0x[0-9a-f]+\)")
_UCX = re.compile(r"^\[[\d.]+\] \[[^]]*\] +\S+ +(?=UCX)")
"""What stands before UCX's messages: the time, the process and the line of its source."""
_WORDS = 60
_SORRY = re.compile(r"fail|error|couldn't|cannot|unable|reject", re.I)
_NAMES = {code: name for code, name in errno.errorcode.items() if code not in (0, 11)}

HEAD = (
    "fault", "program", "produced", "seen as", "status", "outcome", "recovered", "kernel"
)  # fmt: skip
_KERNEL_LETTERS = 90


@dataclass(frozen=True)
class Row:
    """One line of the table: a fault under a program."""

    program: str
    fault: str
    produced: int
    """How much the fault took, or 1 if it was carried out and does not count."""
    seen: str
    status: str
    """The exit status with the program's errno, if it said one; a signal's number as 128 + it."""
    kernel: str
    outcome: str
    recovered: str
    """`yes`, `after a restart` of the guest, or `no`."""
    seconds: float = field(default=0.0, compare=False)
    card: str = cards.DEFAULT
    """The name of the adapters."""


def seen_as(text: str) -> str:
    """Return completion statuses and events in the output of a program, once each."""
    found: list[str] = []
    for match in _STATUS.finditer(text):
        number = int(next(value for value in match.groups() if value is not None))
        if 0 < number < len(WC):
            found.append(f"wc {WC[number]}")
    for match in _EVENT.finditer(text):
        if match["number"] is not None and int(match["number"]) < len(EVENTS):
            found.append(f"event {EVENTS[int(match['number'])]}")
        elif match["watch"]:
            found.append(f"event {match['watch'].strip()}")
    found += [match["text"] for match in _KERNEL_WC.finditer(text)]
    return ", ".join(dict.fromkeys(found))


def last_words(status: int | None, output: str) -> str:
    """Return the last line of a program that failed in which it says so, in a few words.

    Standard output, which has a buffer, may come behind what was said later.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [" ".join(_UCX.sub("", line).split()) for line in lines]
    sorry = [line for line in lines if _SORRY.search(line) and not _BACKTRACE.search(line)] or lines
    return sorry[-1][:_WORDS] if sorry and status else ""


def status_text(status: int | None, output: str) -> str:
    """Return an exit status, with the name of an errno if the output has its text."""
    if status is None:
        return "-"
    for code, name in _NAMES.items():
        if re.search(rf"{re.escape(os.strerror(code))}|errno[ =:]+{code}\b", output):
            return f"{status} {name}"
    return str(status)


def kernel_line(raw: str) -> str:
    """Return the first warning or error of the RDMA stack in the output of `dmesg -r`."""
    for line in raw.splitlines():
        match = _LEVEL.match(line)
        if match and int(match[1]) & 7 <= _WORST_LEVEL and _KERNEL.search(match[2]):
            return match[2].strip()
    return ""


def judge(produced: int, status: int | None) -> str:
    """Return how a program ended; `status` is None for one that did not end in its time."""
    if not produced:
        return NOT_MET
    if status is None:
        return HUNG
    if status == 0:
        return SURVIVED
    return CRASHED if _SIGNALS[0] <= status <= _SIGNALS[1] else CLEAN


def table(rows: Iterable[Row]) -> list[str]:
    """Return the lines of the table with columns as wide as they need to be."""
    lines = [HEAD, *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of a row, in the order of the columns."""
    return (
        row.fault, row.program, str(row.produced), row.seen or "-", row.status, row.outcome,
        row.recovered, row.kernel[:_KERNEL_LETTERS] or "-",
    )  # fmt: skip
