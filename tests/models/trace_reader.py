"""Reads Perfetto traces by the rules of its trace processor, and loads them into SQLite.

It decodes packets with the messages of the `perfetto` package, resolves interned numbers, pairs
the beginnings and ends of each track as a stack, and checks that flows have both ends. `tables`
makes the trace processor's tables `slice`, `track`, `process_track`, `process`, `counter`, `flow`,
and its function `EXTRACT_ARG`.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket, TrackEvent

TABLES = {
    "event_names": "name",
    "event_categories": "name",
    "debug_annotation_names": "name",
    "debug_annotation_string_values": "str",
}


@dataclass
class Slice:
    """A slice or an instant, whose duration is 0."""

    number: int
    time: int
    track: int
    name: str
    category: str
    args: dict[str, int | str]
    depth: int
    parent: int | None
    duration: int = 0
    flows: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)


@dataclass
class Track:
    """A track; `process` is set for one that is a process."""

    number: int
    name: str
    parent: int
    process: int = 0
    counter: bool = False


class TraceReader:
    """Decodes a trace; raises `AssertionError` where it breaks a rule."""

    def __init__(self, data: bytes) -> None:
        self.tracks: dict[int, Track] = {}
        self.slices: list[Slice] = []
        self.values: list[tuple[int, int, int]] = []
        self._interned: dict[str, dict[int, str]] = {}
        self._open: dict[int, list[Slice]] = {}
        self._last = 0
        trace = Trace()
        trace.ParseFromString(data)
        first, *rest = trace.packet
        assert first.sequence_flags & TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        for packet in rest:
            self._packet(packet)
        assert not any(self._open.values()), "a slice has no end"
        self._check_flows()

    @classmethod
    def of(cls, path: Path) -> TraceReader:
        """The trace in a file."""
        data = path.read_bytes()
        return cls(gzip.decompress(data) if path.suffix == ".gz" else data)

    def path(self, number: int) -> list[str]:
        """Names of the track and of those above it, the process first."""
        names: list[str] = []
        while number:
            track = self.tracks[number]
            names.insert(0, track.name)
            number = track.parent
        return names

    def process(self, number: int) -> int:
        """The process above a track, 0 for none."""
        while number and not self.tracks[number].process:
            number = self.tracks[number].parent
        return self.tracks[number].process if number else 0

    def events(self) -> set[int]:
        """Numbers of the log's events that slices show."""
        found: set[int] = set()
        for one in self.slices:
            if "event" in one.args:
                first = int(one.args["event"])
                found.update(range(first, int(one.args.get("last event", first)) + 1))
        return found

    def arrows(self) -> list[tuple[Slice, Slice]]:
        """Both ends of each flow."""
        begun = {flow: one for one in self.slices for flow in one.flows}
        return [(begun[flow], one) for one in self.slices for flow in one.ended]

    def _packet(self, packet: Any) -> None:
        assert packet.trusted_packet_sequence_id, "a packet without a sequence"
        for table, attribute in TABLES.items():
            for entry in getattr(packet.interned_data, table):
                text = getattr(entry, attribute)
                known = self._interned.setdefault(table, {})
                assert entry.iid not in known, "an interned number has two texts"
                known[entry.iid] = text.decode() if isinstance(text, bytes) else text
        if packet.HasField("track_descriptor"):
            self._track(packet.track_descriptor)
        elif packet.HasField("track_event"):
            assert packet.sequence_flags & TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
            assert packet.timestamp >= self._last, "timestamps run backwards"
            self._last = packet.timestamp
            self._event(packet.timestamp, packet.track_event)

    def _track(self, given: Any) -> None:
        assert given.uuid not in self.tracks
        assert given.parent_uuid == 0 or given.parent_uuid in self.tracks
        name = given.process.process_name or given.name
        pid, counter = given.process.pid, given.HasField("counter")
        self.tracks[given.uuid] = Track(given.uuid, name, given.parent_uuid, pid, counter)

    def _event(self, time: int, event: Any) -> None:
        track = self.tracks[event.track_uuid]
        assert track.counter == (event.type == TrackEvent.TYPE_COUNTER)
        opened = self._open.setdefault(track.number, [])
        if event.type == TrackEvent.TYPE_COUNTER:
            self.values.append((time, track.number, event.counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            one = opened.pop()
            one.duration = time - one.time
        else:
            one = self._slice(time, event, opened)
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                opened.append(one)

    def _slice(self, time: int, event: Any, opened: list[Slice]) -> Slice:
        names = self._interned["event_names"]
        (category,) = (self._interned["event_categories"][iid] for iid in event.category_iids)
        one = Slice(
            len(self.slices), time, event.track_uuid,
            names[event.name_iid] if event.name_iid else event.name, category,
            dict(map(self._argument, event.debug_annotations)),
            len(opened), opened[-1].number if opened else None,
            0, list(event.flow_ids), list(event.terminating_flow_ids),
        )  # fmt: skip
        self.slices.append(one)
        return one

    def _argument(self, given: Any) -> tuple[str, int | str]:
        name = self._interned["debug_annotation_names"][given.name_iid]
        if given.HasField("string_value_iid"):
            return name, self._interned["debug_annotation_string_values"][given.string_value_iid]
        return name, getattr(given, given.WhichOneof("value"))

    def _check_flows(self) -> None:
        begun = [flow for one in self.slices for flow in one.flows]
        ended = [flow for one in self.slices for flow in one.ended]
        assert len(set(begun)) == len(begun)
        assert sorted(begun) == sorted(ended), "a flow lacks an end"
        for one, other in self.arrows():
            assert one.time <= other.time, "a flow leads back in time"
            assert one.number < other.number, "a flow ends before it begins"

    def tables(self) -> sqlite3.Connection:
        """The trace processor's tables."""
        base = sqlite3.connect(":memory:")
        base.create_function("EXTRACT_ARG", 2, _extract)
        base.executescript(
            """
            CREATE TABLE slice(id, ts, dur, track_id, category, name, depth, parent_id, arg_set_id);
            CREATE TABLE track(id, name, parent_id);
            CREATE TABLE process(upid, pid, name);
            CREATE TABLE process_track(id, name, upid);
            CREATE TABLE counter(ts, track_id, value);
            CREATE TABLE flow(slice_out, slice_in);
            """
        )
        for one in self.slices:
            row = (one.number, one.time, one.duration, one.track, one.category, one.name)
            rest = (one.depth, one.parent, json.dumps(one.args))
            base.execute("INSERT INTO slice VALUES(?,?,?,?,?,?,?,?,?)", row + rest)
        for track in self.tracks.values():
            row3 = track.number, track.name, track.parent or None
            base.execute("INSERT INTO track VALUES(?,?,?)", row3)
            upid = self.process(track.number)
            if upid:
                base.execute("INSERT INTO process_track VALUES(?,?,?)", (*row3[:2], upid))
            if track.process:
                base.execute("INSERT INTO process VALUES(?,?,?)", (upid, upid, track.name))
        base.executemany("INSERT INTO counter VALUES(?,?,?)", self.values)
        arrows = [(one.number, other.number) for one, other in self.arrows()]
        base.executemany("INSERT INTO flow VALUES(?,?)", arrows)
        return base


def _extract(arguments: str, name: str) -> int | str | None:
    """An argument by its name in the trace processor, such as `debug.event`."""
    found: dict[str, int | str] = json.loads(arguments)
    return found.get(name.removeprefix("debug."))
