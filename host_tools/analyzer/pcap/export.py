"""`bluebridge log DIR --pcap FILE`, and `--dissector FILE`: captures, and what reads them."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO

from bluebridge.device.buslog.reader import Event, Filter, LogError, LogReader
from bluebridge.device.buslog.wire import read_message
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.packets.carriers import frames_of
from bluebridge.device.packets.message import PacketError
from bluebridge.host_tools.analyzer.analysis.classify import transaction_of, transactions
from bluebridge.host_tools.analyzer.output import STANDARD_OUTPUT, opened
from bluebridge.host_tools.analyzer.pcap.pcapng import PcapngWriter
from bluebridge.host_tools.analyzer.pcap.tlp_packets import BarBases, BusPackets
from bluebridge.host_tools.analyzer.transaction import Tlp, Transaction

ROCE = {"v1": 1, "v2": 2}
DISSECTOR_FILE = "bluebridge_tlp.lua"
_AS_ROOT = (
    "as root Wireshark 4.4 loads it neither way, only from the folder that `tshark -G folders` "
    "calls Global Lua Plugins: put it there, or start Wireshark as another user"
)


@dataclass(slots=True)
class Summary:
    """Counts of an export; `partial` are those of which the log has not all bytes."""

    messages: int = 0
    frames: int = 0
    partial: int = 0
    accesses: int = 0
    packets: int = 0


def run(reader: LogReader, wanted: Filter, arguments: argparse.Namespace) -> None:
    """Write the file and print what is in it; raises `LogError` and then leaves no file."""
    path: Path = arguments.pcap
    with opened(path, replace=arguments.force) as file:
        roce = ROCE.get(arguments.roce or "")
        messages = reader.events(Filter(frozenset((Kind.WIRE,))))
        buses = arguments.tlp or next(messages, None) is None
        summary = export(reader, wanted, file, roce=roce, cut=arguments.cut, buses=buses)
    if reader.cut:
        print("the log's last event is cut short: its writer was killed", file=sys.stderr)
    print(_report(path, summary), file=sys.stderr)


def export(
    reader: LogReader,
    wanted: Filter,
    file: BinaryIO,
    *,
    roce: int | None = None,
    cut: bool = False,
    buses: bool = False,
) -> Summary:
    """Write every message that passes the filter; raises `LogError` when there is none.

    With `buses` also every access, in order of time. `roce` forces a version. RDMA packets whose
    payload was not kept carry zeros, since analyzers take them for malformed when they are `cut`;
    Ethernet frames and packets of buses are always cut.
    """
    writer = PcapngWriter(file)
    summary = Summary()
    started = int(reader.meta["started_ns"])
    cutter = BusPackets(_earlier_bases(reader, wanted)) if buses else None
    for item in _items(reader.events(wanted), buses=buses):
        when = started + round(item.time * 1e9)
        if isinstance(item, Transaction):
            frames = [] if cutter is None else list(cutter.packets(item))
            for frame in frames:
                writer.write(f"{item.device} PCIe", when, frame)
            summary.packets += len(frames)
            summary.accesses += bool(frames)
            summary.partial += bool(frames) and len(item.data) < item.length
            continue
        message = read_message(item)
        summary.messages += 1
        summary.partial += not message.complete
        try:
            if not cut:
                message.fill()
            for frame in frames_of(message, roce):
                writer.write(item.device, when, frame)
                summary.frames += 1
        except PacketError as error:
            at = f"the message recorded at {item.time:.6f} s"
            raise LogError(f"{at} is damaged: {error}") from error
    if not summary.messages and not summary.packets:
        what = "message of the fabric" + (" and no access" if buses else "")
        mend = "" if buses else ", without --tlp"
        raise LogError(f"{reader.folder} holds no {what} that passes the filters{mend}")
    return summary


def _earlier_bases(reader: LogReader, wanted: Filter) -> BarBases:
    bases = BarBases()
    if wanted.since is None and not wanted.first:
        return bases
    accesses = frozenset((Kind.CONFIG_READ, Kind.CONFIG_WRITE))
    for event in reader.events(Filter(accesses, until=wanted.since, device=wanted.device)):
        if wanted.first and event.number >= wanted.first:
            break
        bases.follow(transaction_of(event))
    return bases


def _items(events: Iterable[Event], *, buses: bool) -> Iterator[Event | Transaction]:
    """Yield the messages of the wire, and with `buses` the transactions, ordered by time."""
    if not buses:
        yield from (event for event in events if event.kind is Kind.WIRE)
        return
    messages: dict[int, Event] = {}

    def seen() -> Iterator[Event]:
        for event in events:
            if event.kind is Kind.WIRE:
                messages[event.number] = event
            yield event

    for one in transactions(seen()):
        yield messages.pop(one.number) if one.tlp is Tlp.MESSAGE else one


def _report(path: Path, summary: Summary) -> str:
    place = "standard output" if path == STANDARD_OUTPUT else str(path)
    parts = []
    if summary.messages or not summary.packets:
        parts.append(f"{summary.frames} frames of {summary.messages} messages")
    if summary.packets:
        parts.append(f"{summary.packets} packets of {summary.accesses} accesses of buses")
    text = f"{place}: {' and '.join(parts)}"
    if summary.partial:
        text += (
            f"; of {summary.partial} the log kept the beginning only, "
            "`bluebridge up --capture` with a larger BYTES keeps more"
        )
    return text


def write_dissector(path: Path, *, replace: bool) -> None:
    """Write Wireshark's dissector of buses and say its use; after a `LogError` there is no file."""
    with contextlib.suppress(OSError):  # `opened` says what is wrong with the path
        path.parent.mkdir(parents=True, exist_ok=True)
    with opened(path, replace=replace) as file:
        file.write(
            files("bluebridge.host_tools.analyzer.pcap").joinpath(DISSECTOR_FILE).read_bytes()
        )
    if path != STANDARD_OUTPUT:
        root = f"; {_AS_ROOT}" if os.geteuid() == 0 else ""
        print(
            f"{path}: used by `tshark -X lua_script:{path} -r FILE`, and always when it is in "
            f"~/.local/lib/wireshark/plugins{root}",
            file=sys.stderr,
        )
