"""Files that others wrote: folders of the bus log and captures, damaged, with a bound on memory."""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from struct import pack

from bluebridge.device.buslog.reader import Filter, LogError, LogReader
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.net.roce import Op
from bluebridge.device.packets.carriers import LINKTYPE_ETHERNET, Frame
from bluebridge.host_tools.analyzer.activity.assembler import activities
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.pcap.export import export
from bluebridge.host_tools.analyzer.pcap.pcapng import PcapngWriter
from bluebridge.host_tools.commands import check
from bluebridge.host_tools.errors import UsageError
from tests.fuzz.steps import BytesLeft
from tests.models import capture_traffic
from tests.models.tlp_reader import read_transactions
from tests.world.connection import MTU, READABLE, Link, Weather, request_of

MOST_MEMORY = 64 << 20
LONGEST_MESSAGE = 1 << 16
"""Bytes of a message of a damaged log; cutting one of 2 GiB into packets takes minutes."""
_SEED = 7
EVERY = 9
"""One of so many messages of each kind and length is in the log, which makes inputs quick."""


class TooMuchMemory(Exception):
    """An input made a reader take more memory than `MOST_MEMORY`."""


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Raise `TooMuchMemory` if the body took more at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > MOST_MEMORY:
        raise TooMuchMemory(f"{peak >> 20} MiB")


@cache
def _frames() -> list[bytes]:
    """Return the frames of WRITE, SEND, READ and an atomic on a link with losses."""
    link = Link(_SEED, Weather(drop=0.2))
    link.remote.receives = 9
    link.post(request_of(0, Op.WRITE, 3 * MTU))
    link.post(request_of(1, Op.READ, 3 * MTU, va=READABLE))
    link.post(request_of(2, Op.SEND, MTU + 3))
    link.post(request_of(3, Op.FETCH_ADD, 8, va=2 * READABLE - 8, operands=(1, 0)))
    link.clock.run_all()
    return link.frames


def _pcapng() -> bytes:
    file = io.BytesIO()
    writer = PcapngWriter(file)
    for number, frame in enumerate(_frames()):
        writer.write("ab"[number & 1], number * 1000, Frame(LINKTYPE_ETHERNET, frame, len(frame)))
    return file.getvalue()


def _pcap() -> bytes:
    records = [pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, LINKTYPE_ETHERNET)]
    for number, frame in enumerate(_frames()):
        records.append(pack("<IIII", 1, number, len(frame), len(frame)) + frame)
    return b"".join(records)


def _buses() -> bytes:
    file = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in _log().items():
            Path(folder, name).write_bytes(content)
        export(LogReader(Path(folder)), Filter(), file, buses=True)
    return file.getvalue()


@cache
def _captures() -> tuple[bytes, ...]:
    return _pcapng(), _pcap(), _buses(), b""


@cache
def _log() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        log = FileLog(Path(folder))
        device = log.device("a")
        for number in range(8):
            log.record(device, Kind.MMIO_WRITE, 0, 8 * number, 8, bytes(8))
            log.tell(device, Fact.RULE, rule=1, action="ecn", dqpn=0x48, psn=number)
        for frame in _frames():
            log.record(device, Kind.WIRE, 0, 0, len(frame), frame, What.FRAME)
        log.tell(device, Fact.NO_ANSWER, qpn=0x49, psn=1, retry=1, most=7)
        messages = list(capture_traffic.requests(capture_traffic.routes()["v1"]))
        capture_traffic.send(log, messages[::EVERY])
        log.close()
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _damaged(left: BytesLeft, content: bytes) -> bytes:
    """Return the content with other bytes at up to seven places, and perhaps without its end."""
    raw = bytearray(content)
    for _ in range(left.number(1) & 7):
        at = left.number(3) % (len(raw) + 1)
        part = left.take(left.number(1) & 63)
        raw[at : at + len(part)] = part
    if left.number(1) & 1:
        del raw[left.number(3) % (len(raw) + 1) :]
    return bytes(raw)


def _checked(path: Path) -> None:
    """Hold the packets of a file or folder against the rules, as the command does."""
    parser = argparse.ArgumentParser()
    check.add_arguments(parser)
    options = parser.parse_args(["wire", str(path), "--retransmissions", "--ack-timeout", "1"])
    with contextlib.suppress(UsageError), contextlib.redirect_stdout(io.StringIO()):
        check.main(options)


def captures(data: bytes) -> None:
    """A capture with other bytes in it, or any bytes: its packets, and those of buses."""
    left = BytesLeft(data)
    content = _damaged(left, left.choice(_captures()))
    with tempfile.TemporaryDirectory() as folder, bounded_memory():
        path = Path(folder, "capture")
        path.write_bytes(content)
        _checked(path)
        with contextlib.suppress(LogError):
            for _ in read_transactions(io.BytesIO(content)):
                pass


def logs(data: bytes) -> None:
    """A folder of the bus log with other bytes in one of its files."""
    left = BytesLeft(data)
    files = dict(_log())
    name = left.choice(sorted(files))
    files[name] = _damaged(left, files[name])
    with tempfile.TemporaryDirectory() as folder, bounded_memory():
        for each, content in files.items():
            Path(folder, each).write_bytes(content)
        with contextlib.suppress(LogError):
            for event in LogReader(Path(folder)):
                decode(event)
                if event.kind is Kind.WIRE and event.length > LONGEST_MESSAGE:
                    return
            for _ in activities(Path(folder)):
                pass
        _checked(Path(folder))


TARGETS: dict[str, Callable[[bytes], None]] = {"captures": captures, "logs": logs}
