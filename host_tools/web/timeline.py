"""Where and when something happened: the lanes of the time axis, hosts, and ways between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

from bluebridge.device.buslog.positions import read_index
from bluebridge.device.buslog.reader import Filter, Head, LogReader
from bluebridge.device.buslog.record import SEGMENT_GLOB, function_of, host_of
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.analyzer.devices.model import DeviceKind
from bluebridge.host_tools.analyzer.devices.registry import model_of
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction

PARTS = 120
"""The number of equal parts of the shown time for which events are counted."""
_EXACT = 20_000  # The number of events up to which a time is counted event by event
_SAMPLE = 100
"""The number of events of a part that stand for all of it where there are more than `_EXACT`."""
_MOST_MOMENTS = 500
_MOMENTS = frozenset((Kind.FAULT, Kind.LINK, Kind.CONTROL, Kind.RESET))
WIRE = "wire"
_Lanes = dict[str, list[list[float]]]

_KINDS = {DeviceKind.ADAPTER: "HCA", DeviceKind.BRIDGE: "NTB", DeviceKind.ENGINE: "I/OAT"}

_READS = (Tlp.MEMORY_READ, Tlp.CONFIG_READ)


def length(reader: LogReader) -> dict[str, Any]:
    """Return the numbers of events, `first` to `end`, and the time from `begin` to `seconds`."""
    marks = list(_marks(reader))
    if not marks:
        return {"first": 0, "end": 0, "begin": 0.0, "seconds": 0.0}
    (first, begin), (last, seconds) = marks[0], marks[-1]
    begin, seconds = math.floor(begin * 1e6) / 1e6, math.ceil(seconds * 1e6) / 1e6
    return {"first": first, "end": last + 1, "begin": begin, "seconds": seconds}


def timeline(reader: LogReader, since: float, until: float) -> dict[str, Any]:
    """Return what happened in a time, by lane: for each part its first event and their number."""
    names = [host_of(name) for name in reader.meta["devices"]]
    lanes: _Lanes = {name: [[0, 0] for _ in range(PARTS)] for name in [*sorted(set(names)), WIRE]}
    marks = [mark for mark in _marks(reader) if mark[1] >= since] or [(0, since)]
    inside = [number for number, when in marks if when <= until] or [marks[0][0]]
    exact = inside[-1] - inside[0] <= _EXACT
    span = max(until - since, 1e-9)
    if exact:
        for head in reader.heads(Filter(since=since, until=until)):
            place = min(PARTS - 1, int((head[1] / 1e9 - since) / span * PARTS))
            _count(lanes, names, place, head, 1.0)
    else:
        borders = [_at(marks, since + span * place / PARTS) for place in range(PARTS + 1)]
        for place, (first, end) in enumerate(pairwise(borders)):
            heads = list(islice(reader.heads(Filter(first=first)), min(_SAMPLE, end - first)))
            for head in heads:
                _count(lanes, names, place, head, (end - first) / len(heads))
    for parts in lanes.values():
        for part in parts:
            part[1] = round(part[1])
    return {"since": since, "until": until, "exact": exact, "lanes": lanes}


def moments(reader: LogReader) -> list[dict[str, Any]]:
    """Return the faults, changes of links, resets and orders of a log, the first few hundred."""
    found = islice(reader.events(Filter(kinds=_MOMENTS)), _MOST_MOMENTS)
    return [
        {
            "number": event.number,
            "at": event.time,
            "of": event.device,
            "kind": event.kind.name.lower(),
            "text": event.text,
        }
        for event in found
    ]


def _count(lanes: _Lanes, names: list[str], place: int, head: Head, weight: float) -> None:
    number, _, device, kind, _ = head
    own = names[device] if device < len(names) else ""
    lane = lanes.get(WIRE if kind == Kind.WIRE else own)
    if lane is not None:
        part = lane[place]
        part[0] = part[0] if part[1] else number
        part[1] += weight


def _at(marks: list[tuple[int, float]], when: float) -> int:
    """Return the number of the event at a time, on the line between the two marks around it."""
    for (number, begin), (following, end) in pairwise(marks):
        if when <= end:
            part = (when - begin) / max(end - begin, 1e-9)
            return number + int(max(0.0, part) * (following - number))
    return marks[-1][0]


def _marks(reader: LogReader) -> Iterator[tuple[int, float]]:
    """Yield number and time of some events in order, the last event among them."""
    started = int(reader.meta["started_monotonic_ns"])
    number = -1
    for path in sorted(reader.folder.glob(SEGMENT_GLOB)):
        for number, when, _ in read_index(path):
            yield number, (when - started) / 1e9
    for event in reader.events(Filter(first=max(number, 0))):
        if event.number > number:
            number = event.number
            yield number, event.time


@dataclass(frozen=True, slots=True)
class Function:
    """A PCIe function: `kind` is `HCA`, `NTB` or `I/OAT`; `ports` are their names in the log."""

    name: str
    kind: str
    title: str
    ports: tuple[str, ...]


def hosts(devices: Iterable[str]) -> dict[str, list[Function]]:
    """Return the functions of each machine, by the machine's name, in the order of the log."""
    ports: dict[str, list[str]] = {}
    for device in devices:
        ports.setdefault(function_of(device), []).append(device)
    found: dict[str, list[Function]] = {}
    for name, own in ports.items():
        model = model_of(name)
        kind = _KINDS[model.kind]
        numbered = tuple(port if "/" in port else f"{port}/1" for port in own)
        function = Function(name, kind, model.title, numbered if model.is_adapter else ())
        found.setdefault(host_of(name), []).append(function)
    return dict(sorted(found.items()))


def way(one: Transaction, cause: Transaction | None, peer: str | None) -> list[str]:
    """Return the places a transaction passes: `a:cpu`, `a:memory`, `a:port`, `wire`, functions.

    `peer` is the function at the other end of the wire, None if there is none. A transaction whose
    cause is at the other host begins there, unless a message has brought it; a read goes there and
    back.
    """
    name, host = function_of(one.device), host_of(one.device)
    if one.tlp is Tlp.MESSAGE:
        return [name, "wire"] if peer is None else [name, "wire", peer]
    if one.tlp is Tlp.NONE:
        return [name]
    path = _on_bus(one, name, host)
    if cause is None or cause.tlp is Tlp.MESSAGE or host_of(cause.device) == host or peer is None:
        return path
    begun = function_of(cause.device)
    before = [begun] if begun == peer else [begun, f"{host_of(begun)}:port", peer]
    there = [*before, "wire"]
    return [*there, *path, *reversed(there)] if one.tlp in _READS else [*there, *path]


def _on_bus(one: Transaction, name: str, host: str) -> list[str]:
    cpu, memory, port = f"{host}:cpu", f"{host}:memory", f"{host}:port"
    if not one.upstream:
        there = [cpu, port, name]
    else:
        there = [name, port, cpu if one.role is Role.INTERRUPT else memory]
    return [*there, *there[-2::-1]] if one.tlp in _READS else there


def peers(devices: Iterable[str]) -> dict[str, str]:
    """Return by function the one at the other end of the wire, if that has just two ends."""
    names = {function_of(device) for device in devices}
    machines = sorted({host_of(name) for name in names})
    found = {}
    for name in names:
        host = host_of(name)
        twins = [other + name.removeprefix(host) for other in machines if other != host]
        there = [twin for twin in twins if twin in names]
        if len(there) == 1 and model_of(name).kind is not DeviceKind.ENGINE:
            found[name] = there[0]
    return found
