"""Reads what is to be checked: packets of a capture, or of a run's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bluebridge.device.buslog.reader import Event, Filter, LogError, LogReader
from bluebridge.device.buslog.record import WORK_DEVICE_SHIFT, WORK_QPN_SHIFT, function_of
from bluebridge.device.buslog.wire import read_message
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import PSN_MASK, BthOpcode
from bluebridge.device.packets.carriers import frames_of
from bluebridge.device.packets.message import PacketError
from bluebridge.device.packets.reader import MOST_BYTES, Reason, Refused, read_packet
from bluebridge.device.packets.transport import read_transport
from bluebridge.host_tools.analyzer.pcap.pcapng import Packet, captured
from bluebridge.host_tools.analyzer.wire_check.causes import Causes
from bluebridge.host_tools.analyzer.wire_check.rules import Rule, Seen, Violation

_ETHERNET: Final = 1
_CONGESTION: Final = 3  # ECN bits of a packet that met congestion (RFC 3168)
_MARKS: Final = "ecn"
"""The action of a rule that marks packets as if they had met congestion."""
_MOST_MARKS: Final = 1 << 16
_RECORDED: Final = frozenset((Kind.WIRE, Kind.NOTE, Kind.COMMAND))
_DATAGRAMS: Final = (BthOpcode.UD_SEND_ONLY, BthOpcode.UD_SEND_ONLY_IMM)


@dataclass
class Gap:
    """Packets are missing in front of the next one, at `time`."""

    time: int


@dataclass
class Capture:
    """Reads packets and counts them; `cut` are those of which the end is missing.

    `causes` is told of the time-outs that a log has. `lost` is at how many places the record itself
    says that it lacks packets.
    """

    causes: Causes
    packets: int = 0
    cut: int = 0
    datagrams: int = 0
    lost: int = 0
    _marked: set[tuple[int, int]] = field(default_factory=set)
    """Queue pair and PSN of packets that a rule of the lab marked behind the capture."""

    def read(self, path: Path) -> Iterator[Seen | Violation | Gap]:
        """Yield the packets of a file or of a log's folder; raises `LogError` and `OSError`."""
        if path.is_dir():
            for event in LogReader(path).events(Filter(kinds=frozenset((Kind.FAULT,)))):
                rule = event.values
                if rule.get("action") == _MARKS and len(self._marked) < _MOST_MARKS:
                    self._marked.add((rule["dqpn"], rule["psn"]))
            yield from self._read(self._recorded(LogReader(path)))
        else:
            with path.open("rb") as file:
                yield from self._read((packet, 0) for packet in captured(file))

    def _recorded(self, reader: LogReader) -> Iterator[tuple[Packet, int]]:
        """Yield packets of a log, numbered as by `bluebridge log --pcap`, and who sent them."""
        started, lost = int(reader.meta["started_ns"]), 0
        for event in reader.events(Filter(kinds=_RECORDED)):
            when = started + round(event.time * 1e9)
            if event.kind is Kind.COMMAND:
                self.causes.telling.add(function_of(event.device))
            elif event.kind is Kind.NOTE:
                if event.fact is Fact.NO_ANSWER:
                    self.causes.tell(function_of(event.device), event.values["psn"], when)
                lost += event.fact is Fact.EVENTS_LOST
            else:
                for packet, sender in _packets(event, when, reader.meta["devices"]):
                    packet.lost, lost = lost, 0
                    yield packet, sender

    def _read(self, packets: Iterable[tuple[Packet, int]]) -> Iterator[Seen | Violation | Gap]:
        for number, (packet, sender) in enumerate(packets, 1):
            if packet.lost:
                self.lost += 1
                yield Gap(packet.time)
            if packet.link == _ETHERNET:
                yield from self._one(number, packet, sender)

    def _one(self, number: int, packet: Packet, sender: int) -> Iterator[Seen | Violation]:
        whole = len(packet.data) >= packet.length
        frame = packet.data.ljust(min(packet.length, MOST_BYTES), b"\0")
        try:
            wire = read_packet(frame, whole=whole)
        except Refused as refused:
            if refused.reason is not Reason.CARRIER:
                self.packets += 1
                yield Violation(number, packet.time, Rule.REFUSED, 0, 0, refused.reason.value)
            return
        self.packets += 1
        self.cut += not whole
        if wire.opcode in _DATAGRAMS:
            self.datagrams += 1
            return
        marked = wire.traffic_class & _CONGESTION == _CONGESTION
        marked = marked or (wire.target_qpn, wire.psn) in self._marked
        place = wire.sgid, wire.dgid, wire.target_qpn
        transport = read_transport(wire)
        function = function_of(packet.interface)
        yield Seen(
            number, packet.time, *place, transport, marked, wire.migrated, function, sender
        )  # fmt: skip


def _packets(event: Event, when: int, devices: Sequence[str]) -> Iterator[tuple[Packet, int]]:
    """Yield the packets of a message, and the queue pair that sent them, 0 if it is not known."""
    message = read_message(event)
    sender = message.source_qpn
    if message.what is What.FRAME:
        number = (event.work >> WORK_DEVICE_SHIFT) - 1
        requester = devices[number] if 0 <= number < len(devices) else ""
        if function_of(requester) == function_of(event.device):
            sender = event.work >> WORK_QPN_SHIFT & PSN_MASK
    try:
        message.fill()
        for frame in frames_of(message):
            yield Packet(event.device, frame.link, when, frame.data, frame.length), sender
    except PacketError as error:
        at = f"the message recorded at {event.time:.6f} s"
        raise LogError(f"{at} is damaged: {error}") from error
