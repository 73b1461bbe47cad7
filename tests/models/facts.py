"""Facts in events that no device wrote."""

from __future__ import annotations

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import Fact, Told

_FACTS = {kind: [fact for fact in Fact if fact.kind is kind] for kind in Kind}


def with_fact(event: Event) -> Event:
    """Let an event of a kind that tells facts tell one of them, by its number, else leave it."""
    facts = _FACTS[event.kind]
    if facts:
        fact = facts[event.number % len(facts)]
        event.told = Told(fact, fact.unpack(fact.pack({})))
    return event
