"""The record of fault rules in the bus log: each message that a rule takes or lets go on."""

from __future__ import annotations

from typing import Final

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults import traits
from bluebridge.device.fabric.faults.rule import Rule
from bluebridge.device.fabric.messages import Message
from bluebridge.device.layout.buslog import Kind, What

_WHAT: Final = {
    "request": int(What.REQUEST),
    "response": int(What.RESPONSE),
    "datagram": int(What.DATAGRAM),
    "frames": int(What.FRAME),
    "packet": int(What.FRAME),
}


class FaultLog:
    """The writer of a `Kind.FAULT` event for each message that a rule takes or delivers."""

    def __init__(self, events: EventLog) -> None:
        self._events = events

    def write(self, device: str, rule: Rule, direction: str, verb: str, message: Message) -> None:
        """Log that a rule of a link of `device` does what `verb` says to a message."""
        events = self._events
        if not events.active:
            return
        text = f"{rule.label}rule {rule.number} {verb} ({direction}): {traits.text_of(message)}"
        events.work, before = message.work, events.work
        try:
            events.record(
                events.device(device),
                int(Kind.FAULT),
                0,
                rule.number,
                traits.length_of(message),
                text.encode(),
                _WHAT[traits.kind_of(message)],
                max(traits.target_qpn(message), 0),
            )
        finally:
            events.work = before
