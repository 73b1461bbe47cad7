"""Finds one packet in the bus log, from the sender's first store to the receiver's interrupt."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from bluebridge.device.buslog.reader import Event, LogError, LogReader
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.analyzer.event_lines import HEADER, table_line
from bluebridge.host_tools.errors import LabError

_PATIENCE = 20.0
_PAUSE = 0.1
_BEFORE = 30
"""The number of events before the copy among which the frame's header is looked for."""


def lines(logs: Path, size: int, sender: str, receiver: str) -> list[str]:
    """The table lines of the first frame of `size` bytes that a DMA engine copied.

    `sender` and `receiver` are guests. Raises `LabError` when the log has none after a while; what
    has just happened may not be written yet.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            events = list(LogReader(logs).tail())
        except LogError as error:
            raise LabError(f"no bus log: {error}") from error
        found = bounds(events, size, sender, receiver)
        if found is not None:
            return [HEADER, *(table_line(event) for event in events[slice(*found)])]
        if time.monotonic() > deadline:
            raise LabError(f"the bus log has no frame of {size} bytes", f"read it: {logs}")
        time.sleep(_PAUSE)


def bounds(
    events: Sequence[Event], size: int, sender: str, receiver: str
) -> tuple[int, int] | None:
    """Return the index of a frame's first event and of the event after its last; else None."""
    sent = _copied(events, 0, f"{sender}.dma", size)
    if sent is None:
        return None
    taken = _copied(events, sent, f"{receiver}.dma", size)
    if taken is None:
        return None
    for last in range(taken, len(events)):
        if events[last].kind is Kind.IRQ and events[last].device == f"{receiver}.dma":
            return _header(events, sent, sender, size), last + 1
    return None


def _copied(events: Sequence[Event], start: int, engine: str, size: int) -> int | None:
    """The first copy of `size` bytes that an engine wrote."""
    for index in range(start, len(events)):
        event = events[index]
        if event.device == engine and event.length == size and event.what is What.COPY:
            return index
    return None


def _header(events: Sequence[Event], sent: int, sender: str, size: int) -> int:
    """Where the sender's processor stored the frame's length into the peer's memory.

    ntb_transport writes it before the copy (ntb_tx_copy_callback marks the frame when it is done).
    """
    length = size.to_bytes(4, "little")
    for index in range(sent, max(-1, sent - _BEFORE), -1):
        event = events[index]
        stored = event.kind is Kind.MMIO_WRITE and event.bar and event.data == length
        if stored and event.device.startswith(f"{sender}."):
            return index
    return sent
