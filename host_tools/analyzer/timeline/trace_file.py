"""Writes Perfetto's trace format: packets of track descriptors and track events.

Format: protos/perfetto/trace/track_event of the Perfetto project. Names and words that repeat are
interned: a packet that uses a new one says its number and text. The trace is written in pieces,
each a whole `Trace` message; such messages may follow one another in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from bluebridge.host_tools.analyzer.timeline.tracks import Mark, Shape

SEQUENCE: Final = 1
"""Number of the only packet sequence of the trace; interned numbers are valid in it."""
PIECE_PACKETS: Final = 4096
MOST_INTERNED: Final = 50_000
"""Texts of one table that are interned; further ones stand in their packets."""
_EVENTS: Final = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
NAMES, CATEGORIES, KEYS = "event_names", "event_categories", "debug_annotation_names"
WORDS: Final = "debug_annotation_string_values"
"""Fields of the interned data: of events, and names and repeated values of arguments."""
_ADDRESSES: Final = frozenset(("address",))  # Arguments that are shown in hexadecimal
_WORDS: Final = frozenset(("cause", "posted by", "status", "operation"))
"""Arguments whose values are interned, since they repeat."""


class TraceFile:
    """A trace that is handed to `write` in pieces; `close` writes what is left."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._builder = TraceProtoBuilder()
        self._packets = 0
        self._tables: dict[str, dict[str, int]] = {NAMES: {}, CATEGORIES: {}, KEYS: {}, WORDS: {}}
        self._last_uuid = 0
        first = self._packet()
        first.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        first.first_packet_on_sequence = True

    def process(self, name: str, pid: int) -> int:
        """Make a process and return the number of its track."""
        track = self._descriptor()
        track.process.pid, track.process.process_name = pid, name
        track.child_ordering = TrackDescriptor.ChildTracksOrdering.EXPLICIT
        return self._last_uuid

    def track(self, name: str, parent: int, rank: int) -> int:
        """Make a track; neighbours of one name are drawn as one track with several rows."""
        track = self._descriptor(parent)
        track.name, track.sibling_order_rank = name, rank
        track.child_ordering = TrackDescriptor.ChildTracksOrdering.EXPLICIT
        return self._last_uuid

    def counter(self, name: str, parent: int, rank: int, unit: str) -> int:
        """Make a track of values and return its number."""
        track = self._descriptor(parent)
        track.name, track.sibling_order_rank = name, rank
        track.counter.unit_name = unit
        return self._last_uuid

    def add(self, marks: Iterable[Mark]) -> None:
        """Write marks, which must be in order of time."""
        for mark in marks:
            packet = self._packet()
            packet.timestamp = mark.time
            packet.sequence_flags = _EVENTS
            event = packet.track_event
            event.type, event.track_uuid = mark.shape, mark.track
            if mark.shape is Shape.COUNTER:
                event.counter_value = mark.value
            elif mark.shape is not Shape.END:
                self._describe(packet, event, mark)

    def close(self) -> None:
        """Write the packets that are still collected."""
        self._write(self._builder.serialize())
        self._builder, self._packets = TraceProtoBuilder(), 0

    def _packet(self) -> Any:
        if self._packets == PIECE_PACKETS:
            self.close()
        self._packets += 1
        packet = self._builder.add_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        return packet

    def _descriptor(self, parent: int = 0) -> Any:
        self._last_uuid += 1
        track = self._packet().track_descriptor
        track.uuid = self._last_uuid
        if parent:
            track.parent_uuid = parent
        return track

    def _describe(self, packet: Any, event: Any, mark: Mark) -> None:
        number = self._interned(packet, NAMES, mark.name)
        if number:
            event.name_iid = number
        else:
            event.name = mark.name
        event.category_iids.append(self._interned(packet, CATEGORIES, mark.category))
        add = event.debug_annotations.add
        for name, value in mark.arguments:
            annotation = add()
            annotation.name_iid = self._interned(packet, KEYS, name)
            if name in _ADDRESSES:
                annotation.pointer_value = value
            elif value.__class__ is int:
                annotation.int_value = value
            elif name in _WORDS:
                annotation.string_value_iid = self._interned(packet, WORDS, str(value))
            else:
                annotation.string_value = value
        if mark.flows:
            event.flow_ids.extend(mark.flows)
        if mark.ended:
            event.terminating_flow_ids.extend(mark.ended)

    def _interned(self, packet: Any, table: str, text: str) -> int:
        """Return the number of `text` in a table of interned data; 0 if the table is full."""
        known = self._tables[table]
        number = known.get(text, 0)
        if number or len(known) >= MOST_INTERNED:
            return number
        number = known[text] = len(known) + 1
        entry = getattr(packet.interned_data, table).add()
        entry.iid = number
        if table == WORDS:
            entry.str = text.encode()
        else:
            entry.name = text
        return number
