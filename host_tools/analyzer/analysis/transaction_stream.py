"""The transactions of a log in order, with the stores of a BlueFlame line as one write."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from bluebridge.device.buslog.reader import Event
from bluebridge.host_tools.analyzer.analysis.classify import transaction_of
from bluebridge.host_tools.analyzer.analysis.triggers import same_line
from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.transaction import Role, Transaction


def transactions(events: Iterable[Event]) -> Iterator[Transaction]:
    """The transactions of `events`, ordered by the time of their first event.

    An incomplete line is held back, with all that follows it, until it is full or its device does
    something else.
    """
    held: deque[Transaction] = deque()
    lines: dict[str, Transaction] = {}
    for event in events:
        one = transaction_of(event)
        line = lines.pop(one.device, None)
        if one.role is Role.BLUEFLAME:
            if line is not None and _extends(line, one):
                line.extend(one)
                one = line
            else:
                held.append(one)
            if one.length < adapter_of(one.device).line:
                lines[one.device] = one
        else:
            held.append(one)
        if not lines:
            yield from held
            held.clear()
    yield from held


def _extends(line: Transaction, store: Transaction) -> bool:
    return line.address + line.length == store.address and same_line(line, store)
