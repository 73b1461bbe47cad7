"""One RDMA write of NTRDMA in the bus log: from the sender's doorbell to its own completion."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from bluebridge.device.buslog.event_lines import HEADER, table_line
from bluebridge.device.buslog.reader import Event, LogError, LogReader
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.ntrdma.work import COMPLETION, SEND_ENTRY, WorkCode
from bluebridge.device.layout.pci import MESSAGE_BASE, MESSAGE_END
from bluebridge.host_tools.errors import LabError

EXPLANATION = (
    "The sender's engine copies the data, the send ring's new entry, the ring's index and a",
    "virtual doorbell into the peer's memory, then stores the peer's interrupt message. The peer's",
    "engine copies the completion, its ring's index and a doorbell back, and interrupts.",
)
PAYLOAD = 8
_PATIENCE = 20.0
_PAUSE = 0.1


def lines(logs: Path, sender: str, receiver: str) -> list[str]:
    """The table lines of the last write of `PAYLOAD` bytes, and of its completion.

    Raises `LabError` when the log has none after a while; what has just happened may not be written
    yet.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            events = list(LogReader(logs).tail(8))
        except LogError as error:
            raise LabError(f"no bus log: {error}") from error
        found = one(events, sender, receiver)
        if found:
            return [HEADER, *(table_line(event) for event in found)]
        if time.monotonic() > deadline:
            raise LabError("the bus log has no RDMA write", f"read it: {logs}")
        time.sleep(_PAUSE)


def one(events: Sequence[Event], sender: str, receiver: str) -> list[Event]:
    """The events of a write: stores of both engines, what came through the windows, interrupts."""
    for index in range(len(events) - 1, -1, -1):
        if not _is_write(events[index], f"{sender}.dma"):
            continue
        begin = _doorbell(events, index, f"{sender}.dma")
        end = _answered(events, index, f"{receiver}.dma")
        if begin is not None and end is not None:
            return [event for event in events[begin:end] if _concerns(event)]
    return []


def _is_write(event: Event, engine: str) -> bool:
    """Whether an engine copies the entry of a write of `PAYLOAD` bytes."""
    if event.device != engine or event.what is not What.COPY or event.kind is not Kind.DMA_WRITE:
        return False
    if event.length < SEND_ENTRY.size or len(event.data) < SEND_ENTRY.size:
        return False
    get = SEND_ENTRY.get
    return get(event.data, "op") == WorkCode.WRITE and get(event.data, "rdma_length") == PAYLOAD


def _doorbell(events: Sequence[Event], index: int, engine: str) -> int | None:
    """The store that started the engine."""
    for at in range(index, -1, -1):
        if events[at].device == engine and events[at].kind is Kind.MMIO_WRITE:
            return at
    return None


def _answered(events: Sequence[Event], index: int, engine: str) -> int | None:
    """Behind the interrupt that follows the completion."""
    completed = False
    for at in range(index, len(events)):
        event = events[at]
        if event.device == engine and event.what is What.COPY:
            completed = completed or event.length == COMPLETION.size
            low = event.address & 0xFFFFFFFF
            if completed and event.kind is Kind.DMA_WRITE and MESSAGE_BASE <= low < MESSAGE_END:
                return at + 1
    return None


def _concerns(event: Event) -> bool:
    return event.kind not in (Kind.CONFIG_READ, Kind.CONFIG_WRITE)
