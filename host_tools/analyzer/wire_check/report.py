"""Reads what is to be checked, a capture or a run's log, and tells what was found."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, Final

from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.net.roce import BthOpcode
from bluebridge.device.packets.reader import Reason, Refused, read_packet
from bluebridge.device.packets.transport import read_transport
from bluebridge.host_tools.analyzer.pcap.export import export
from bluebridge.host_tools.analyzer.pcap.pcapng import captured
from bluebridge.host_tools.analyzer.wire_check.checker import Checker
from bluebridge.host_tools.analyzer.wire_check.requests import Cause, GoBack
from bluebridge.host_tools.analyzer.wire_check.rules import TOLERATED, Rule, Seen, Violation

_ETHERNET: Final = 1
_CONGESTION: Final = 3  # ECN bits of a packet that met congestion (RFC 3168)
_MARKS: Final = re.compile(r" marks \(.*> qpn=(0x[0-9a-f]+) psn=(0x[0-9a-f]+)")
_DATAGRAMS: Final = (BthOpcode.UD_SEND_ONLY, BthOpcode.UD_SEND_ONLY_IMM)


@dataclass
class Capture:
    """Reads packets and counts them; `cut` are those of which the end is missing."""

    packets: int = 0
    cut: int = 0
    datagrams: int = 0
    _marked: set[tuple[int, int]] = field(default_factory=set)
    """Queue pair and PSN of packets that a rule of the lab marked behind the capture."""

    def read(self, path: Path) -> Iterator[Seen | Violation]:
        """Yield the packets of a file or of a log's folder; raises `LogError` and `OSError`."""
        if path.is_dir():
            whole = io.BytesIO()
            for event in LogReader(path).events(Filter(kinds=frozenset((Kind.FAULT,)))):
                if found := _MARKS.search(event.data.decode(errors="replace")):
                    self._marked.add((int(found[1], 16), int(found[2], 16)))
            export(LogReader(path), Filter(), whole)
            whole.seek(0)
            yield from self._read(whole)
        else:
            with path.open("rb") as file:
                yield from self._read(file)

    def _read(self, file: BinaryIO) -> Iterator[Seen | Violation]:
        for number, packet in enumerate(captured(file), 1):
            if packet.link != _ETHERNET:
                continue
            whole = len(packet.data) >= packet.length
            frame = packet.data if whole else packet.data.ljust(packet.length, b"\0")
            try:
                wire = read_packet(frame, whole=whole)
            except Refused as refused:
                if refused.reason is not Reason.CARRIER:
                    self.packets += 1
                    yield Violation(number, packet.time, Rule.REFUSED, 0, 0, refused.reason.value)
                continue
            self.packets += 1
            self.cut += not whole
            if wire.opcode in _DATAGRAMS:
                self.datagrams += 1
                continue
            marked = wire.traffic_class & _CONGESTION == _CONGESTION
            marked = marked or (wire.target_qpn, wire.psn) in self._marked
            place = wire.sgid, wire.dgid, wire.target_qpn
            transport = read_transport(wire)
            yield Seen(number, packet.time, *place, transport, marked, wire.migrated)


_US = 1000


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


Tolerated = Counter[tuple[str, Rule]]
"""How often each rule was broken that `--tolerate` lets packets break, by its word."""


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
    lines = _retransmissions(checker.went_back)
    return found + (["retransmissions, times least / median / most:"] if lines else []) + lines


def _retransmissions(went_back: Sequence[GoBack]) -> list[str]:
    lines = []
    for cause in Cause:
        of_it = [each for each in went_back if each.cause is cause]
        if not of_it:
            continue
        times = f"after {_times([each.reaction for each in of_it])}"
        detections = [each.detection for each in of_it if each.detection is not None]
        if detections:
            times = f"seen in {_times(detections)}, {times}"
        lines.append(f"  {len(of_it)} by {cause.value}: {times}")
    return lines


def _times(values: Sequence[int]) -> str:
    low, high = min(values) / _US, max(values) / _US
    return f"{low:.0f} / {median(values) / _US:.0f} / {high:.0f} us"


def as_json(
    capture: Capture, checker: Checker, violations: Sequence[Violation], tolerated: Tolerated
) -> dict[str, Any]:
    """Return all of it as values for JSON; times are ns."""
    return {
        "packets": capture.packets,
        "flows": checker.connections,
        "datagrams": capture.datagrams,
        "cut": capture.cut,
        "unpaired": checker.unpaired,
        "violations": [{**asdict(each), "rule": each.rule.name.lower()} for each in violations],
        "tolerated": {rule.name.lower(): count for (_, rule), count in tolerated.items()},
        "went_back": [asdict(each) for each in checker.went_back],
    }
