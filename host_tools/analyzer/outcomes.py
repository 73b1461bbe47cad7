"""Which events failed, and which commands a driver repeats all the time."""

from __future__ import annotations

from typing import Final

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.host_tools.analyzer.devices.registry import adapter_of
from bluebridge.host_tools.analyzer.transaction import OK

POLLED: Final = ("DUMP_ETH_STATS", "MAD_IFC", "NOP", "QUERY_IF_STAT", "QUERY_PORT")
"""The commands by which a driver reads counters and the states of its ports."""


def command_status(event: Event) -> str:
    """Return the name of a firmware command's status; empty for another event."""
    return event.values["status"] if event.kind is Kind.COMMAND else ""


def completion_failure(event: Event) -> int | None:
    """Return the syndrome of a completion in error; None for another event."""
    if event.what is not What.CQE or event.kind is not Kind.DMA_WRITE:
        return None
    return adapter_of(event.device).failure(event.data)


def failed(event: Event) -> bool:
    """Return True for a command or completion that failed, and for what a fault did."""
    if event.kind is Kind.COMMAND:
        return command_status(event) not in ("", OK)
    return event.kind is Kind.FAULT or completion_failure(event) is not None


def polling(event: Event) -> bool:
    """Return True for a command of `POLLED` that did not fail."""
    if event.kind is not Kind.COMMAND:
        return False
    command = event.values
    return command["name"] in POLLED and command["status"] == OK
