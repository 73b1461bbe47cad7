"""The results of a run as a printed table and as docs/conformance.md."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from bluebridge.host_tools.campaigns.conformance.journal import Entry
from bluebridge.host_tools.campaigns.conformance.program import FAILED, PASSED, SKIPPED, Verdict
from bluebridge.host_tools.campaigns.conformance.setups import SETUPS, Setup
from bluebridge.images.source import HOME

_LACKING = (
    ("Create custom mr with additional access", "mlx4_ib has no FLUSH"),
    ("Device /dev/dri", "a GPU; and mlx4_ib registers no DMA-BUF (`reg_user_mr_dmabuf`)"),
    ("Device memory", "mlx4_ib has none (`alloc_dm`)"),
    (
        ".*Ipv[46](Ext)?Spec",
        "mlx4_ib knows rules for Ethernet, IB, IPv4, TCP, UDP (`parse_flow_attr`)",
    ),
    (".*UDP with RoCEv2", "the test names both ConnectX-3 by part number"),
    ("Extended CQ", "tag matching: libmlx4 has no such flag of a CQ"),
    ("Extended QP", "libmlx4 has no `ibv_qp_ex`"),
    (
        "Flow creation",
        "mlx4_core keeps no rules unless loaded with `log_num_mgm_entry_size=-1`, as in roce-v2",
    ),
    ("ODP", "mlx4_ib pins memory"),
    ("Parent Domain", "libmlx4 has none"),
    ("SRQ resize", "`mlx4_ib_modify_srq` refuses it"),
    (
        "WQN must be aligned",
        "the test names both ConnectX-3 by part number; over aligned work queues it runs in dpdk",
    ),
    ("Link layer|Must be run by root on Ethernet|To Create RAW QP", "the link is not Ethernet"),
    ("All gid indices", "an empty place in the table of an InfiniBand port"),
)
"""Beginnings of reasons as regular expressions, and what is missing."""


def lacking(reason: str) -> str:
    """Return what is missing where a test gives `reason`; empty if nobody has looked it up."""
    return next((why for begins, why in _LACKING if re.match(begins, reason)), "")


KNOWN: dict[str, str] = {}
"""Failures with a known cause, which a run tells of but does not end with a bad status for.

A key is the part of an entry's key (`setup/suite/name`, and `: test` for one of many) that names
what fails, a value is why. A row that no longer fails must go: the run says so.
"""


def cause(key: str) -> str:
    """Why what `key` names fails, or nothing."""
    return next((why for part, why in KNOWN.items() if part in key), "")


PAGE = HOME / "docs" / "conformance.md"
_TEXT = """\
# Conformance

Stock programs of Debian 13 between two guests whose kernel drives the emulated HCA with the stock
mlx4 drivers. `make conformance` runs all of them and writes this page; an interrupted run goes on
with `python -m bluebridge.host_tools.campaigns.conformance --resume DIR`. `make conformance-short`
runs the quick ones. The kernel's clients of the bridges follow, and have [a page of their
own](ntb-conformance.md).

| setup | what it is |
|---|---|
{setups}

Passed / failed / skipped. rdma-core's own tests count one by one: 181 are not of another vendor's
device.

{summary}

rdma-core's tests: {tests}

## Failed
{failed}

## Skipped, with the reason each printed, and what the card or its drivers lack
{skipped}

## Programs
{programs}
"""


def table(entries: Sequence[Entry]) -> str:
    """One line per program, then one per failed or skipped test within it."""
    return "\n".join(line for entry in entries for line in lines(entry))


def lines(entry: Entry) -> Iterator[str]:
    """The lines of one program."""
    if len(entry.verdicts) == 1 and not entry.verdicts[0].part:
        (verdict,) = entry.verdicts
        yield f"{verdict.status:<8}{entry.seconds:6.1f} s  {entry.key}{_because(verdict)}"
        return
    counts = entry.counts()
    status = FAILED if entry.failed else PASSED
    told = ", ".join(f"{counts[each]} {each}" for each in (PASSED, FAILED, SKIPPED))
    yield f"{status:<8}{entry.seconds:6.1f} s  {entry.key}: {told}"
    for verdict in entry.verdicts:
        if verdict.status == FAILED:
            yield f"{verdict.status:<8}{'':8}    {verdict.part}{_because(verdict)}"


def _because(verdict: Verdict) -> str:
    return f": {verdict.reason}" if verdict.reason else ""


def page(entries: Sequence[Entry]) -> str:
    """The whole page."""
    return _TEXT.format(
        setups="\n".join(f"| {setup.name} | {setup.what} |" for setup in SETUPS),
        summary=_summary(entries),
        tests=_tests(entries),
        failed=failed(entries) or "None.",
        skipped=_skipped(entries) or "None.",
        programs=programs_table(entries, SETUPS),
    )


def _summary(entries: Sequence[Entry]) -> str:
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for entry in entries:
        counts[entry.suite, entry.setup] += entry.counts()
    names = [setup.name for setup in SETUPS]
    rows = ["| suite | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for suite in dict.fromkeys(entry.suite for entry in entries):
        cells = [_cell(counts.get((suite, name))) for name in names]
        rows.append(f"| {suite} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _cell(count: Counter[str] | None) -> str:
    if count is None:
        return ""
    return " / ".join(str(count[status]) for status in (PASSED, FAILED, SKIPPED))


def _tests(entries: Sequence[Entry]) -> str:
    found = []
    for entry in entries:
        if entry.suite == "rdma-core":
            count = entry.counts()
            could = count.total() - count[SKIPPED]
            found.append(
                f"{entry.setup}: {could} of {count.total()} could run, {count[PASSED]} passed"
            )
    return "; ".join(found) + "." if found else "not run."


def failed(entries: Sequence[Entry]) -> str:
    """A line for each failure, with its cause where that is known."""
    found = []
    for entry in entries:
        for verdict in entry.verdicts:
            if verdict.status == FAILED:
                key = full_key(entry, verdict)
                why = cause(key)
                found.append(f"- `{key}`{_because(verdict)}" + (f" ({why})" if why else ""))
    return "\n".join(found)


def _skipped(entries: Sequence[Entry]) -> str:
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        for verdict in entry.verdicts:
            if verdict.status == SKIPPED:
                name = verdict.part or f"{entry.suite}/{entry.name}"
                reasons[verdict.reason][name].append(entry.setup)
    rows = []
    for reason, names in sorted(reasons.items()):
        rows.append(skip_line(reason))
        for name, setups in sorted(names.items()):
            rows.append(f"  - `{name}` ({', '.join(setups)})")
    return "\n".join(rows)


def skip_line(reason: str) -> str:
    """A reason that a test gave, and what the card or its drivers lack."""
    why = lacking(reason)
    return f"- {reason}" + (f" *({why})*" if why else "")


def programs_table(entries: Sequence[Entry], setups: Sequence[Setup]) -> str:
    """Return a row for each program, with its status under each setup."""
    status: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for entry in entries:
        count = entry.counts()
        shown = next(each for each in (FAILED, PASSED, SKIPPED) if count[each])
        status[entry.suite, entry.name][entry.setup] = shown
    names = [setup.name for setup in setups]
    rows = ["| program | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for (suite, name), found in status.items():
        cells = [found.get(setup, "") for setup in names]
        rows.append(f"| {suite}: `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def full_key(entry: Entry, verdict: Verdict) -> str:
    """Return the name of a verdict: that of the program, and of the test within it."""
    return f"{entry.key}: {verdict.part}" if verdict.part else entry.key


def unexpected(entries: Sequence[Entry]) -> list[str]:
    """Failures without a known cause."""
    return [
        key
        for entry in entries
        for verdict in entry.verdicts
        if verdict.status == FAILED and not cause(key := full_key(entry, verdict))
    ]
