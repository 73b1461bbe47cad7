"""ntb_pingpong by the bus log: the time from a doorbell to the doorbell of the peer's driver."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.ntb import gen4
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.programs.ntb_clients import (
    COUNT,
    Guests,
    load_both,
    pingpong,
    unload_both,
)

ROUNDS = 2000
WARM_UP = 200


def half_us(guests: Guests) -> float:
    """The median in microseconds: interrupt, both handlers, the timer that rings, the store."""
    client = pingpong(0)
    load_both(guests, client)
    for guest in guests.machines:
        guests.until(guest, f"[ $({COUNT}) -ge {ROUNDS} ]")
    unload_both(guests, client)
    found = reply_times(LogReader(guests.pair.logs))[WARM_UP:]
    if not found:
        raise LabError("the bus log has no ping-pong of ntb_pingpong")
    return statistics.median(found) * 1e6


def reply_times(events: Iterable[Event]) -> list[float]:
    """Seconds from each doorbell to the peer's next one.

    Both sides of ntb_pingpong start a game, so two doorbells may be on their way at once: the next
    doorbell of a side that has received two since its last one is not counted.
    """
    found: list[float] = []
    received: dict[str, list[float]] = {}
    for event in events:
        if not _is_doorbell(event):
            continue
        waiting = received.setdefault(event.device, [])
        if len(waiting) == 1:
            found.append(event.time - waiting[0])
        waiting.clear()
        for other, times in received.items():
            if other != event.device:
                times.append(event.time)
    return found


def _is_doorbell(event: Event) -> bool:
    """Whether it stores bit 0 into a doorbell register of the bridge."""
    start = gen4.DOORBELL.base
    return (
        event.kind == Kind.MMIO_WRITE
        and event.bar == 0
        and start <= event.address < start + 4 * gen4.LINK_BIT
        and bool(event.data[:1])
        and bool(event.data[0] & 1)
    )
