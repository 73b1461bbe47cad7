"""`bluebridge check wire CAPTURE`: holds the packets of a capture against the rules of RoCE."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from bluebridge.device.buslog.reader import LogError
from bluebridge.host_tools.analyzer.wire_check import report
from bluebridge.host_tools.analyzer.wire_check.checker import Checker
from bluebridge.host_tools.analyzer.wire_check.report import Capture
from bluebridge.host_tools.analyzer.wire_check.rules import TOLERATED, Seen, Violation, tolerance
from bluebridge.host_tools.errors import UsageError

_US = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Say what each side did wrong, packet by packet: go-back-N of requests and of READ "
        "answers, acknowledgements, NAKs, MSN, congestion reports, lengths, ICRC; and how long "
        "retransmissions took. CAPTURE is a pcapng or pcap file of `bluebridge log --pcap` or of "
        "tcpdump, or a run's folder. The status is 1 when a packet breaks a rule."
    )
    parser.add_argument("what", choices=("wire",), help="wire: the packets between two ports")
    parser.add_argument("capture", type=Path, metavar="CAPTURE")
    parser.add_argument(
        "--tolerate",
        default="",
        metavar="WHAT",
        help="rxe: what Linux's Soft-RoCE does by design; loss: a capture that lacks lost packets; "
        "buffers: programs that write into a buffer which is still being sent; several with commas",
    )
    parser.add_argument(
        "--cnp-interval",
        type=int,
        default=0,
        metavar="US",
        help="the least time between two congestion reports for a queue pair (default 0: any)",
    )
    parser.add_argument(
        "--retransmissions", action="store_true", help="name each packet that goes back, and why"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def main(options: argparse.Namespace) -> int:
    """Check a capture; returns 1 if a packet breaks a rule, else 0. Raises `UsageError`."""
    names = [name for name in options.tolerate.split(",") if name]
    if unknown := [name for name in names if name not in TOLERATED]:
        raise UsageError(
            f"--tolerate: there is no {unknown[0]!r}", f"choose from {', '.join(TOLERATED)}"
        )
    checker, capture = Checker(interval=options.cnp_interval * _US), Capture()
    tolerated: report.Tolerated = Counter()
    try:
        broken, start = _check(capture.read(options.capture), checker, names, tolerated)
    except LogError as error:
        raise UsageError(
            f"{options.capture}: {error}", "give a capture, or a run's folder"
        ) from error
    except OSError as error:
        raise UsageError(f"{options.capture}: {error.strerror}", "give a capture") from error
    if not capture.packets:
        raise UsageError(f"{options.capture} holds no RoCE packet", "see `bluebridge log --pcap`")
    if options.json:
        print(json.dumps(report.as_json(capture, checker, broken, tolerated)))
    else:
        lines = [report.line(each, start) for each in broken]
        if options.retransmissions:
            lines += [report.back_line(each, start) for each in checker.went_back]
        if lines:
            print("\n".join(lines))
        counts = Counter(each.rule for each in broken)
        print("\n".join(report.summary(capture, checker, counts, tolerated)))
    return 1 if broken else 0


def _check(
    items: Iterable[Seen | Violation],
    checker: Checker,
    names: Sequence[str],
    tolerated: report.Tolerated,
) -> tuple[list[Violation], int]:
    """Return the violations, and the time of the first packet; count what is tolerated."""
    broken: list[Violation] = []
    start: int | None = None
    for item in items:
        start = item.time if start is None else start
        if isinstance(item, Violation):
            broken.append(item)
            continue
        for each in checker.take(item):
            name = tolerance(each.rule, names, migrated=item.migrated)
            if name is None:
                broken.append(each)
            else:
                tolerated[name, each.rule] += 1
    return broken, start or 0
