"""What was found, as lines and as values for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any, Final

from bluebridge.host_tools.analyzer.wire_check.capture import Capture
from bluebridge.host_tools.analyzer.wire_check.causes import MOST_KEPT, Cause, Causes, GoBack
from bluebridge.host_tools.analyzer.wire_check.checker import Checker
from bluebridge.host_tools.analyzer.wire_check.rules import TOLERATED, Rule, Violation

_US: Final = 1000

Tolerated = Counter[tuple[str, Rule]]
"""How often each rule was broken that `--tolerate` lets packets break, by its word."""


def line(violation: Violation, start: int) -> str:
    """Return a violation as one line; `start` is the time of the capture's first packet."""
    seconds = (violation.time - start) / 1e9
    detail = f" ({violation.detail})" if violation.detail else ""
    where = f"qpn={violation.qpn:#x} psn={violation.psn:#x}: " if violation.qpn else ""
    return (
        f"packet {violation.number}  {seconds:.6f}  {where}{violation.rule.value}{detail}"
        f"  [{violation.rule.name.lower()}]"
    )


def back_line(back: GoBack, start: int) -> str:
    """Return a retransmission as one line."""
    seconds = (back.time - start) / 1e9
    where = f"qpn={back.qpn:#x} psn={back.psn:#x}"
    return (
        f"packet {back.number}  {seconds:.6f}  {where}: goes back, by {back.cause.value}, "
        f"after {back.reaction / _US:.0f} us"
    )


def summary(
    capture: Capture, checker: Checker, broken: Counter[Rule], tolerated: Tolerated
) -> list[str]:
    """Return the lines behind those of the violations."""
    found = [
        f"{capture.packets} packets, {checker.connections} flows of requests, "
        f"{capture.datagrams} datagrams: {sum(broken.values())} break a rule"
    ]
    found += [f"  {count} x {rule.name.lower()}" for rule, count in broken.most_common()]
    found += [
        f"  tolerated: {count} x {rule.name.lower()} ({name}: {TOLERATED[name][rule]})"
        for (name, rule), count in tolerated.most_common()
    ]
    if capture.cut:
        found.append(f"of {capture.cut} packets the end is missing, their ICRC was not looked at")
    if checker.unpaired:
        found.append(f"{checker.unpaired} answers belong to no request of the capture")
    if capture.lost:
        found.append(f"at {capture.lost} places packets are missing: what is behind is judged anew")
    lines = _retransmissions(checker.causes)
    return found + (["retransmissions, times least / median / most:"] if lines else []) + lines


def _retransmissions(causes: Causes) -> list[str]:
    lines = []
    for cause in Cause:
        of_it = [each for each in causes.went_back if each.cause is cause]
        if not of_it:
            continue
        times = f"after {_times([each.reaction for each in of_it])}"
        detections = [each.detection for each in of_it if each.detection is not None]
        if detections:
            times = f"seen in {_times(detections)}, {times}"
        lines.append(f"  {causes.counts[cause]} by {cause.value}: {times}")
    if causes.counts.total() > MOST_KEPT:
        lines.append(f"  times are those of the first {MOST_KEPT}")
    if causes.expired:
        lines.append(f"the adapters of the log told of {causes.expired} time-outs")
    return lines


def _times(values: Sequence[int]) -> str:
    low, high = min(values) / _US, max(values) / _US
    return f"{low:.0f} / {median(values) / _US:.0f} / {high:.0f} us"


def as_json(
    capture: Capture,
    checker: Checker,
    violations: Sequence[Violation],
    broken: Counter[Rule],
    tolerated: Tolerated,
) -> dict[str, Any]:
    """Return all of it as values for JSON; times are ns. The lists have the first ones only."""
    return {
        "packets": capture.packets,
        "flows": checker.connections,
        "datagrams": capture.datagrams,
        "cut": capture.cut,
        "unpaired": checker.unpaired,
        "lost": capture.lost,
        "broken": {rule.name.lower(): count for rule, count in broken.items()},
        "violations": [{**asdict(each), "rule": each.rule.name.lower()} for each in violations],
        "tolerated": {rule.name.lower(): count for (_, rule), count in tolerated.items()},
        "retransmissions": {cause.value: count for cause, count in checker.causes.counts.items()},
        "timeouts_told": checker.causes.expired,
        "went_back": [asdict(each) for each in checker.causes.went_back],
    }
