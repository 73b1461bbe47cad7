"""The packets of a capture, or of a run's bus log, for the checker."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.net.roce import BthOpcode
from bluebridge.device.packets.reader import Reason, Refused, read_packet
from bluebridge.device.packets.transport import read_transport
from bluebridge.host_tools.analyzer.pcap.export import export
from bluebridge.host_tools.analyzer.pcap.pcap_reader import captured
from bluebridge.host_tools.analyzer.wire_check.rules import Rule, Violation
from bluebridge.host_tools.analyzer.wire_check.seen import Seen

_ETHERNET: Final = 1
_CONGESTION: Final = 3
"""ECN bits of a packet that met congestion (RFC 3168)."""
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
