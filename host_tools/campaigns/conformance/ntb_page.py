"""The results of the bridges as docs/ntb-conformance.md: which client works on which."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.host_tools.campaigns.conformance.journal import Entry
from bluebridge.host_tools.campaigns.conformance.page import failed
from bluebridge.host_tools.campaigns.conformance.program import FAILED, PASSED, SKIPPED
from bluebridge.host_tools.campaigns.conformance.setups import BRIDGES
from bluebridge.images.source import HOME

PAGE = HOME / "docs" / "ntb-conformance.md"
_TEXT = """\
# Conformance of the bridges

The kernel's NTB clients, unmodified, between two guests of two processors each ([ntb.md](ntb.md)).
`make conformance` runs them after the HCA's programs, `--only ntb` of `python -m
bluebridge.host_tools.campaigns.conformance` runs them alone, and either writes this page;
`--resume DIR` goes on with a run that was stopped. Every step waits for what a driver shows, has a
time limit, and fails if a kernel complains.

| setup | what it is |
|---|---|
{setups}

{matrix}

"refused": the driver says itself that it cannot work on this bridge, and why is below. An empty
cell was not run.

## Failed
{failed}

## What each showed
{shown}
"""
_WORDS = {PASSED: "passed", SKIPPED: "refused", FAILED: "failed"}


def page(entries: Sequence[Entry]) -> str:
    """The whole page."""
    return _TEXT.format(
        setups="\n".join(f"| {setup.name} | {setup.what} |" for setup in BRIDGES.values()),
        matrix=matrix(entries),
        failed=failed(entries) or "None.",
        shown=_shown(entries),
    )


def matrix(entries: Sequence[Entry]) -> str:
    """Return the table of clients by bridges."""
    cells = {(entry.name, entry.setup): _cell(entry) for entry in entries}
    rows = ["| client | " + " | ".join(setup.name for setup in BRIDGES.values()) + " |"]
    rows.append("|---" * (len(BRIDGES) + 1) + "|")
    for name in dict.fromkeys(entry.name for entry in entries):
        found = [cells.get((name, setup.name), "") for setup in BRIDGES.values()]
        rows.append(f"| {name} | " + " | ".join(found) + " |")
    return "\n".join(rows)


def _cell(entry: Entry) -> str:
    count = entry.counts()
    return _WORDS[next(each for each in (FAILED, PASSED, SKIPPED) if count[each])]


def _shown(entries: Sequence[Entry]) -> str:
    rows = []
    for name in dict.fromkeys(entry.name for entry in entries):
        rows.append(f"- {name}")
        for entry in entries:
            told = "; ".join(
                f"{verdict.part}: {verdict.reason}" if verdict.part else verdict.reason
                for verdict in entry.verdicts
                if verdict.reason
            )
            if entry.name == name and told:
                rows.append(f"  - {entry.setup}: {told}")
    return "\n".join(rows)
