"""Judging a run anew by its transcript, when a line of a kernel has been explained since."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bluebridge.host_tools.campaigns.soak import kernel_log
from bluebridge.host_tools.campaigns.soak.plan import FAULT
from bluebridge.host_tools.campaigns.soak.rounds import TITLE, Round, Rounds, Run, Stock
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.host_description import HostDescription

_KERNEL = "kernel of guest "
_ROUND = re.compile(r"round (\d+): ")
KernelLines = Mapping[tuple[int, str], Sequence[str]]
"""The lines of a guest's kernel in the round of a number."""


def anew(folder: Path) -> list[Round]:
    """The rounds of the run in `folder`, their kernels judged by the lists of today.

    What else failed has failed. Raises `UsageError` when there is no run.
    """
    try:
        done = [_round(line) for line in (folder / Rounds.RECORDS).read_text().splitlines()]
        said = _kernel_lines((folder / Rounds.TRANSCRIPT).read_text(errors="replace"))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{folder} holds no run of the soak ({error})", "name another") from error
    return [_judged(found, said) for found in done]


def the_run(folder: Path) -> Run | None:
    """Return the run in `folder`; None for one that was ended before its time was over."""
    try:
        fields = json.loads((folder / Rounds.RUN).read_text())
        return Run(**{**fields, "machine": HostDescription(**fields["machine"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        said = f"{folder / Rounds.RUN} says nothing of a run ({error})"
        raise UsageError(said, "name another folder") from error


def _round(line: str) -> Round:
    fields = json.loads(line)
    stock = fields.pop("stock")
    failures = tuple(fields.pop("failures"))
    return Round(**fields, stock=stock and Stock(**stock), failures=failures)


def _kernel_lines(transcript: str) -> KernelLines:
    said: dict[tuple[int, str], list[str]] = {}
    number, guest = 0, ""
    for line in transcript.splitlines():
        if title := TITLE.fullmatch(line):
            guest = title[1].removeprefix(_KERNEL) if title[1].startswith(_KERNEL) else ""
            if found := _ROUND.match(title[1]):
                number = int(found[1])
        elif guest:
            said.setdefault((number, guest), []).append(line)
    return said


def _judged(found: Round, said: KernelLines) -> Round:
    failures = [line for line in found.failures if _KERNEL not in line]
    broken = found.what.partition(",")[0].partition(": ")[2].split(" and ")
    for (number, guest), lines in said.items():
        if number == found.number:
            recovering = found.kind == FAULT and guest in broken
            bad = kernel_log.complaints(lines, recovering)
            failures += [f"{_KERNEL}{guest}: {line}" for line in bad]
    return replace(found, failures=tuple(failures))
