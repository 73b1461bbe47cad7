"""`bluebridge check wire CAPTURE`: holds the packets of a capture against the rules of RoCE."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from bluebridge.device.buslog.reader import LogError
from bluebridge.device.layout.net.roce import ack_timeout_us
from bluebridge.host_tools.analyzer.wire_check import report
from bluebridge.host_tools.analyzer.wire_check.capture import Capture, Gap
from bluebridge.host_tools.analyzer.wire_check.causes import Causes
from bluebridge.host_tools.analyzer.wire_check.checker import Checker
from bluebridge.host_tools.analyzer.wire_check.rules import (
    TOLERATED,
    Rule,
    Seen,
    Violation,
    tolerance,
)
from bluebridge.host_tools.errors import UsageError

_US = 1000
_MOST_KEPT = 1 << 14
"""Violations that are told one by one; further ones are counted."""


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
        "buffers: programs that write into a buffer which is still being sent; "
        "odp: RNR NAKs while pages of memory on demand are absent; several with commas",
    )
    parser.add_argument(
        "--cnp-interval",
        type=int,
        default=0,
        metavar="US",
        help="the least time between two congestion reports for a queue pair (default 0: any)",
    )
    parser.add_argument(
        "--ack-timeout",
        type=int,
        default=0,
        choices=range(32),
        metavar="CODE",
        help="the senders' `timeout` in ibv_qp_attr (4.096 us * 2^CODE), which proves that one "
        "which waited so long went back by time-out; the log of a run proves it by itself",
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
    causes = Causes(round(ack_timeout_us(options.ack_timeout) * _US))
    checker, capture = Checker(options.cnp_interval * _US, causes), Capture(causes)
    found = _Found(names)
    try:
        found.take(capture.read(options.capture), checker)
    except LogError as error:
        raise UsageError(
            f"{options.capture}: {error}", "give a capture, or a run's folder"
        ) from error
    except OSError as error:
        raise UsageError(f"{options.capture}: {error.strerror}", "give a capture") from error
    if not capture.packets:
        raise UsageError(f"{options.capture} holds no RoCE packet", "see `bluebridge log --pcap`")
    if options.json:
        values = report.as_json(capture, checker, found.kept, found.broken, found.tolerated)
        print(json.dumps(values))
    else:
        lines = [report.line(each, found.start) for each in found.kept]
        if (more := found.broken.total() - len(found.kept)) > 0:
            lines.append(f"{more} more packets break a rule")
        if options.retransmissions:
            lines += [report.back_line(each, found.start) for each in causes.went_back]
        lines += report.summary(capture, checker, found.broken, found.tolerated)
        print("\n".join(lines))
    return 1 if found.broken else 0


class _Found:
    """The rules that packets broke, with counts; `kept` has the first violations."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.kept: list[Violation] = []
        self.broken: Counter[Rule] = Counter()
        self.tolerated: report.Tolerated = Counter()
        self.start = 0

    def take(self, items: Iterable[Seen | Violation | Gap], checker: Checker) -> None:
        """Take the packets of a capture."""
        first = True
        for item in items:
            if first:
                first, self.start = False, item.time
            if isinstance(item, Violation):
                self._add(item)
            elif isinstance(item, Gap):
                checker.gap()
            else:
                for each in checker.take(item):
                    name = tolerance(each.rule, self._names, migrated=item.migrated)
                    if name is None:
                        self._add(each)
                    else:
                        self.tolerated[name, each.rule] += 1

    def _add(self, found: Violation) -> None:
        self.broken[found.rule] += 1
        if len(self.kept) < _MOST_KEPT:
            self.kept.append(found)
