"""Shared by the parts of a krping run: its log, states, statistics, errors and data."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import random
import sys
import threading
import time
from array import array
from dataclasses import asdict, dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TextIO

from bluebridge.device.layout.net.cm import RejectReason
from bluebridge.guest.cm import CmEvent, EventType
from bluebridge.guest.connections import PREFIX_LENGTHS
from bluebridge.guest.protocols.krping.option_string import Options

PREFIX = "krping: "

RESERVOIR = 100_000
"""The number of latencies kept; beyond it, a uniform sample bounds endless runs."""

FIRST, LAST = 65, 122
PERIOD = LAST - FIRST + 1


class Log:
    """A log to standard output and, when given, a file, which several threads share.

    `debugging` turns on a line for every step of every iteration, as the module's debug=1 does.
    """

    def __init__(
        self, stream: TextIO | None = None, path: str | None = None, *, debugging: bool = False
    ) -> None:
        self.debugging = debugging
        self._stream = stream if stream is not None else sys.stdout
        self._file = open(path, "a", encoding="utf-8") if path else None  # noqa: SIM115
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """Log a line without the module's name, as krping logs most of its steps."""
        stamped = f"[{time.monotonic():12.6f}] {text}\n"
        with self._lock:
            for stream in (self._stream, self._file):
                if stream is not None:
                    # A full disk or a closed pipe must not end the run that is being logged.
                    with contextlib.suppress(OSError, ValueError):
                        stream.write(stamped)
                        stream.flush()

    def debug(self, text: str) -> None:
        """Log a line of a step of an iteration, if that is wanted."""
        if self.debugging:
            self.line(text)

    def note(self, text: str) -> None:
        """Log a line that begins with the module's name."""
        self.line(PREFIX + text)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


class State(IntEnum):
    """The states of a krping thread.

    CONNECTED and those behind it are passed through once per ping; ERROR ends every wait.
    """

    IDLE = 1
    CONNECT_REQUEST = 2
    ADDR_RESOLVED = 3
    ROUTE_RESOLVED = 4
    CONNECTED = 5
    RDMA_READ_ADV = 6
    RDMA_READ_COMPLETE = 7
    RDMA_WRITE_ADV = 8
    RDMA_WRITE_COMPLETE = 9
    ERROR = 10


def after_advertisement(state: State) -> State:
    """Return the server's state after an advertisement: of the source, later of the sink."""
    if state <= State.CONNECTED or state is State.RDMA_WRITE_COMPLETE:
        return State.RDMA_READ_ADV
    return State.RDMA_WRITE_ADV


def after_go_ahead(state: State) -> State:
    """Return the client's state after a go-ahead: the source was read, later the sink written."""
    if state is State.RDMA_READ_ADV:
        return State.RDMA_WRITE_ADV
    return State.RDMA_WRITE_COMPLETE


@dataclass(slots=True)
class Stats:
    """The bytes and messages of each operation, counted when the work completes."""

    send_bytes: int = 0
    send_msgs: int = 0
    recv_bytes: int = 0
    recv_msgs: int = 0
    write_bytes: int = 0
    write_msgs: int = 0
    read_bytes: int = 0
    read_msgs: int = 0

    def by_name(self, name: str) -> dict[str, str | int]:
        """Return the nine columns by name, in order."""
        return {"name": name, **asdict(self)}

    def line(self, name: str) -> str:
        """Return one line of /proc/krping without the newline."""
        return " ".join(str(value) for value in self.by_name(name).values())


class Latencies:
    """Microseconds per iteration: exact minimum, percentiles of at most `RESERVOIR` samples."""

    def __init__(self) -> None:
        self.count = 0
        self.minimum = float("inf")
        self._kept = array("d")

    def add(self, microseconds: float) -> None:
        """Record one iteration."""
        self.count += 1
        if microseconds < self.minimum:
            self.minimum = microseconds
        if len(self._kept) < RESERVOIR:
            self._kept.append(microseconds)
            return
        place = int(random.random() * self.count)
        if place < RESERVOIR:
            self._kept[place] = microseconds

    def summary(self) -> dict[str, float] | None:
        """Return {min, p50, p99} in microseconds, None before the first iteration."""
        if not self.count:
            return None
        ordered = sorted(self._kept)
        return {
            "min": round(self.minimum, 1),
            "p50": round(_percentile(ordered, 0.50), 1),
            "p99": round(_percentile(ordered, 0.99), 1),
        }


def _percentile(ordered: list[float], share: float) -> float:
    """Return the sample below which `share` of the others lie (nearest rank)."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class KrpingError(Exception):
    """The run failed; the text is one line for the user."""


class Cancelled(Exception):
    """The user ended the run."""


def explain(event: CmEvent, options: Options) -> str:
    """Return one line for the user about a connection that did not come up."""
    addr, port = options.addr, options.port
    if event.status == -errno.ENETUNREACH:
        bits = PREFIX_LENGTHS[ipaddress.ip_address(addr).version]
        return f"{addr} is not in this HCA's network of {bits} bits: there is no router here"
    if event.type in (EventType.ADDR_ERROR, EventType.ROUTE_ERROR):
        return f"nobody answers at {addr}: is krping running on the server with that address?"
    if event.type is EventType.REJECTED and event.status == RejectReason.INVALID_SERVICE_ID:
        return f"nobody listens on port {port} at {addr}: start the krping server first"
    if event.type is EventType.REJECTED and event.status == RejectReason.STALE_CONNECTION:
        return (
            f"{addr} still had the connection of a client that ended without a word: "
            "start the client again"
        )
    if event.type is EventType.REJECTED:
        return f"{addr} port {port} rejected the connection, reason {event.status}"
    reason = os.strerror(-event.status)
    return f"{addr} port {port} does not answer connection requests ({reason})"


@lru_cache(maxsize=4)
def _roll(length: int) -> bytes:
    """Return at least `length` rolling characters for a start at any of the first 58."""
    return bytes(range(FIRST, LAST + 1)) * (length // PERIOD + 2)


def ping_data(ping: int, size: int) -> bytes:
    """Return the `size` bytes of ping number `ping`, the last of them NUL."""
    head = b"rdma-ping-%d: " % ping
    start = ping % PERIOD
    return (head + _roll(size)[start : start + size])[: size - 1] + b"\0"


def shown(data: bytes | memoryview) -> str:
    """Return the part of the data that `verbose` prints: up to 64 bytes, to the first NUL."""
    return bytes(data[:64]).split(b"\0", 1)[0].decode("ascii", "backslashreplace")
