"""`bluebridge log DIR --pcap FILE`: write the log's messages as a pcapng capture."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bluebridge.device.buslog.filter import Filter
from bluebridge.device.buslog.output import STANDARD_OUTPUT, opened
from bluebridge.device.buslog.pcap.file import PcapngWriter
from bluebridge.device.buslog.reader import Event, LogError, LogReader
from bluebridge.device.buslog.wire import read_message
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.packets.carriers import Frame, frames_of
from bluebridge.device.packets.message import PacketError

ROCE = {"v1": 1, "v2": 2}
_OWN_OPTIONS = ("roce", "cut")
_OTHER_OPTIONS = ("bar", "kind", "decode")


@dataclass(slots=True)
class Summary:
    """What an export wrote; `partial` counts messages whose payload the log did not keep whole."""

    messages: int = 0
    frames: int = 0
    partial: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of an export."""
    parser.add_argument(
        "--pcap",
        type=Path,
        metavar="FILE",
        help="write what crossed the fabric as a capture for tshark (- for standard output)",
    )
    parser.add_argument(
        "--roce", choices=sorted(ROCE), help="with --pcap: as this version, whatever it was"
    )
    parser.add_argument(
        "--cut",
        action="store_true",
        help="with --pcap: end packets where the log's payload ends instead of adding zeros",
    )
    parser.add_argument("--force", action="store_true", help="replace the file that is written")


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raises `ValueError` for options that do not go together."""
    if arguments.pcap is None:
        for name in _OWN_OPTIONS:
            if getattr(arguments, name):
                raise ValueError(f"--{name} needs --pcap FILE")
        return
    for name in _OTHER_OPTIONS:
        value = getattr(arguments, name)
        if value is not None and value is not False:  # BAR 0 is a choice, too
            raise ValueError(f"--{name} chooses events to print, --pcap writes messages: drop one")


def run(reader: LogReader, wanted: Filter, arguments: argparse.Namespace) -> None:
    """Write the file and say what is in it; raises `LogError` and leaves no file then."""
    path: Path = arguments.pcap
    with opened(path, replace=arguments.force) as file:
        roce = ROCE.get(arguments.roce or "")
        summary = export(reader, wanted, file, roce=roce, cut=arguments.cut)
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
) -> Summary:
    """Write every message that passes the filter; raises `LogError` when there is none.

    `roce` forces a version. RDMA packets whose payload was not kept carry zeros, since analyzers
    take them for malformed when they are `cut`; Ethernet frames are always cut.
    """
    writer = PcapngWriter(file)
    summary = Summary()
    started = int(reader.meta["started_ns"])
    for event in reader.events(wanted):
        if event.kind is not Kind.WIRE:
            continue
        summary.messages += 1
        message, when = read_message(event), started + round(event.time * 1e9)
        summary.partial += not message.complete
        if not cut:
            message.fill()
        summary.frames += _write(writer, event, when, frames_of(message, roce))
    if not summary.messages:
        raise LogError(f"{reader.folder} holds no message of the fabric that passes the filters")
    return summary


def _write(writer: PcapngWriter, event: Event, when: int, frames: Iterable[Frame]) -> int:
    """Write the frames of a message that left at `when`, ns since 1970; how many they were."""
    count = 0
    try:
        for frame in frames:
            writer.write(event.device, when, frame)
            count += 1
    except PacketError as error:
        raise LogError(f"the message recorded at {event.time:.6f} s is damaged: {error}") from error
    return count


def _report(path: Path, summary: Summary) -> str:
    place = "standard output" if path == STANDARD_OUTPUT else str(path)
    text = f"{place}: {summary.frames} frames of {summary.messages} messages"
    if summary.partial:
        text += (
            f"; of {summary.partial} the log kept the beginning only, "
            "a larger --capture BYTES of the device server keeps more"
        )
    return text
