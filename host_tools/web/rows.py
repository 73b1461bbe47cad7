"""Activities as the page gets them: a row of the list, and steps, each with its sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bluebridge.device.buslog.reader import Event, LogError
from bluebridge.device.buslog.record import function_of
from bluebridge.device.buslog.wire import read_message
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.events import TELLING
from bluebridge.host_tools.analyzer.activity import Activity
from bluebridge.host_tools.analyzer.activity.routine import failed, routine
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.devices.registry import model_of
from bluebridge.host_tools.analyzer.queues import QPN_MASK
from bluebridge.host_tools.analyzer.transaction import OK, Role, TimeModel, Transaction
from bluebridge.host_tools.web.timeline import way

CAPTIONS = {
    Role.DOORBELL: "the driver stores {size} in its UAR page: go on from {entry}",
    Role.BLUEFLAME: "the driver stores {size} of {entry} itself in its BlueFlame page",
    Role.ENTRY: "the HCA takes {entry} from the BlueFlame page and need not fetch it",
    Role.WQE: "the HCA fetches {entry} from memory: what to do, and with which bytes",
    Role.PAYLOAD_READ: "the HCA fetches {size} to send from memory",
    Role.REQUEST: "the request leaves for the other HCA, with {size} of data",
    Role.RECEIVE_WQE: "the HCA fetches a receive entry: where arriving bytes may go",
    Role.PAYLOAD_WRITE: "the HCA writes the {size} that arrived to memory",
    Role.RESPONSE: "the answer goes back: did the request arrive, and was it allowed",
    Role.CQE: "the HCA writes a completion entry to memory: {outcome}",
    Role.EQE: "the HCA writes an event entry to memory: something is there for the driver",
    Role.INTERRUPT: "the device interrupts the processor: look at the event queue",
    Role.DOORBELL_RECORD: "the HCA reads in memory how far the program has come in its queue",
    Role.CQ_ARM: "the driver asks for an event when the next completion entry comes",
    Role.EQ_ARM: "the driver says how far it has read the events, and asks for the next interrupt",
    Role.REGISTER_READ: "the driver reads a register of the device",
    Role.REGISTER_WRITE: "the driver writes a register of the device",
    Role.CONFIG: "the host reads or writes the configuration space of the function",
    Role.TABLE: "the HCA uses one of its tables in memory",
    Role.DESCRIPTOR: "the DMA engine fetches a descriptor: from where to where to copy",
    Role.COPY_READ: "the DMA engine reads {size} to copy",
    Role.COPY_WRITE: "the DMA engine writes {size} where they belong",
    Role.COMPLETION_WORD: "the DMA engine writes to memory how far it has come",
    Role.WINDOW_STORE: "the driver stores {size} in a window: they reach the other host's memory",
    Role.WINDOW_LOAD: "the driver loads {size} from a window, so from the other host's memory",
    Role.WINDOW: "the bridge passes {size} on to the other host's memory",
}
"""The sentences by the role of a step; other roles have a text of their own in the log."""

MOST_STEPS = 2000
"""The most steps of an activity in the page; a line says when it had more."""
_OF_PAIRS = (
    Role.DOORBELL, Role.WQE, Role.RECEIVE_WQE, Role.PAYLOAD_READ, Role.PAYLOAD_WRITE, Role.REQUEST,
)  # fmt: skip
"""Roles of transactions whose object is a queue pair."""


def caption(one: Transaction, activity: Activity) -> str:
    """Return the sentence of a step; empty for one that the log itself describes in words."""
    transfer = activity.transfer
    entry = f"entry {transfer.index}" if transfer is not None else "the next entry"
    done = activity.status in ("", OK)
    return CAPTIONS.get(one.role, "").format(
        size=f"{one.length} byte{'s' * (one.length != 1)}",
        entry=entry,
        outcome="the work is done" if done else f"the work failed with {activity.status}",
    )


def row(activity: Activity) -> dict[str, Any]:
    """Return the row of the list; `at` is in seconds since the log began, `us` its duration."""
    mark_of = activity.mark_of
    found = {
        "number": activity.number,
        "kind": activity.kind.value,
        "device": activity.device,
        "title": activity.title,
        "at": round(activity.begin, 6),
        "us": round((activity.end - activity.begin) * 1e6, 1),
        "status": activity.status,
        "failed": failed(activity),
        "steps": len(activity.transactions),
        "routine": routine(activity),
    }
    return found if mark_of is None else found | {"mark_of": mark_of}


def detail(
    activity: Activity,
    events: Mapping[int, Event],
    peers: Mapping[str, str],
    model: TimeModel | None = None,
) -> dict[str, Any]:
    """Return the row and the steps, causes before effects; `events` are those of the activity."""
    parts = activity.transactions
    places = _with_notes_in_time(list(activity.tree()), parts)
    transfer = activity.transfer
    times = () if model is None or transfer is None else model.times(transfer)
    steps = []
    for place, depth in places[:MOST_STEPS]:
        one = parts[place]
        cause = parts[one.parent] if one.parent is not None else None
        step = _step(one, events.get(one.number), activity.begin)
        step["caption"] = caption(one, activity)
        step["depth"] = depth
        step["way"] = way(one, cause, peers.get(function_of(one.device)))
        if place < len(times) and (time := times[place]) is not None:
            step["modelled"] = round(time, 4)
        steps.append(step)
    notes = list(activity.notes)
    if len(places) > MOST_STEPS:
        notes.append(f"the first {MOST_STEPS} of {len(places)} steps")
    more = {"notes": notes, "cause": activity.cause, "pairs": pairs_of(activity), "list": steps}
    return row(activity) | more


def pairs_of(activity: Activity) -> list[tuple[str, int]]:
    """Return the queue pairs that an activity is about: function and number, its own first."""
    function, transfer = function_of(activity.device), activity.transfer
    if transfer is not None:
        peer = [(function_of(transfer.peer), transfer.peer_qpn)] if transfer.peer_qpn else []
        return [(function, transfer.qpn), *(each for each in peer if each[0])]
    model = model_of(activity.device)
    if model.adapter is None:
        return []
    if activity.subject is not None and activity.subject.noun == "QP":
        return [(function, activity.subject.number & QPN_MASK)]
    named = (one.obj for one in activity.transactions if one.role in _OF_PAIRS and one.obj)
    return [(function, qpn) for qpn in named][:1]


def _with_notes_in_time(
    places: Sequence[tuple[int, int]], parts: Sequence[Transaction]
) -> list[tuple[int, int]]:
    """Return places and depths with each note before what came after it, such as a lost message."""
    notes = [place for place, _ in places[1:] if parts[place].role is Role.NOTE]
    found = [each for each in places if each[0] not in notes]
    for note in notes:
        later = (
            i for i, (place, _) in enumerate(found) if parts[place].number > parts[note].number
        )
        at = next(later, len(found))
        found.insert(at, (note, found[min(at, len(found) - 1)][1] if found else 0))
    return found


def _step(one: Transaction, event: Event | None, begin: float) -> dict[str, Any]:
    data, had = _data(one, event)
    known = one.on_bus and not one.is_vector
    return {
        "number": one.number,
        "device": one.device,
        "us": round((one.time - begin) * 1e6, 1),
        "type": one.type_name,
        "what": one.purpose,
        "decoded": "" if event is None else decode(event),
        "address": f"{one.address:#x}" if known else "",
        "length": one.length,
        "data": data.hex(),
        "kept": kept(len(data), had),
    }


def _data(one: Transaction, event: Event | None) -> tuple[bytes, int]:
    """Return the bytes that the log keeps of a transfer, and the number that it had."""
    if event is not None and (event.kind in TELLING or event.kind == Kind.IRQ):
        return b"", 0
    if event is None or event.kind != Kind.WIRE:
        return bytes(one.data[: one.length]), one.length
    try:
        payload = bytes(read_message(event).payload)
    except LogError:
        return event.data, event.length
    return payload[: event.length], event.length


def kept(count: int, had: int) -> str:
    """Return a remark when fewer bytes were kept than the transfer had, else an empty text."""
    if count >= had:
        return ""
    if not count:
        return f"none of its {had} bytes were kept"
    return f"{count} of {had} bytes were kept: `up --capture {had}` keeps all"
