"""What rules change in a RoCE packet that goes on its way: a mark of congestion, a header field.

Check sums are right again afterwards, so that only what a field says is wrong.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from bluebridge.device.fabric.faults.roce_packets import NETWORKS, RocePacket, mended
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.net.ip import CONGESTION_EXPERIENCED, IPV4, IPV6, UDP
from bluebridge.device.layout.net.roce import BTH, GRH, HEADERS

_CLASSES: Final = {IPV4.name: "tos", IPV6.name: "traffic_class"}
"""The field of a network header whose low two bits are for ECN; RoCE v1 has none."""
_EXTENDED: Final = {header.name: header for headers in HEADERS.values() for header in headers}
_TABLES: Final = {
    table.name.lower(): table for table in (IPV4, IPV6, GRH, UDP, BTH, *_EXTENDED.values())
}


class Change(ABC):
    """A change of packets; one that a rule makes does not keep the next rules from them."""

    verb = "changes"
    """The change in the words of the bus log."""

    @abstractmethod
    def fits(self, packet: RocePacket) -> bool:
        """Return True if a packet has what is changed."""

    @abstractmethod
    def of(self, packet: RocePacket) -> bytes:
        """Return the frame of a packet that fits, changed."""


class Mark(Change):
    """Congestion experienced, in a packet whose sender says that it knows of ECN (RFC 3168)."""

    verb = "marks"

    def fits(self, packet: RocePacket) -> bool:
        """Return True for a packet of RoCE v2 that may be marked and is not."""
        table = NETWORKS[packet.kind]
        field = _CLASSES.get(table.name)
        if field is None:
            return False
        codepoint = table.get(packet.frame, field, packet.network) & CONGESTION_EXPERIENCED
        return codepoint not in (0, CONGESTION_EXPERIENCED)

    def of(self, packet: RocePacket) -> bytes:
        """Return the frame, marked."""
        table, place = NETWORKS[packet.kind], packet.network
        field, frame = _CLASSES[table.name], bytearray(packet.frame)
        table.set(frame, field, table.get(frame, field, place) | CONGESTION_EXPERIENCED, place)
        return mended(packet, frame)


class Rewrite(Change):
    """Another `value` in a `field` of a header, both as their table calls them."""

    verb = "rewrites"

    def __init__(self, table: Struct, field: str, value: int) -> None:
        self._table = table
        self._field = field
        self._value = value

    def fits(self, packet: RocePacket) -> bool:
        """Return True for a packet that has the header."""
        return self._table.name in _places(packet)

    def of(self, packet: RocePacket) -> bytes:
        """Return the frame with the value in the field."""
        frame = bytearray(packet.frame)
        self._table.set(frame, self._field, self._value, _places(packet)[self._table.name])
        return mended(packet, frame)


def rewrite_of(words: str) -> Rewrite:
    """Return the change that `HEADER.FIELD=VALUE` asks for; raises `ValueError` that says why not.

    Check sums are no fields here, since they follow from all others, and neither are addresses.
    """
    name, _, text = words.partition("=")
    header, _, field = name.partition(".")
    table = _TABLES.get(header)
    if table is None:
        raise ValueError(f"{words!r}: write HEADER.FIELD=VALUE, with one of {', '.join(_TABLES)}")
    fields = [each.name for each in table if not each.raw and each.name != "checksum"]
    if field not in fields:
        raise ValueError(f"{words!r}: {header} has {', '.join(fields) or 'no field to change'}")
    most = table.field(field).mask
    try:
        value = int(text, 0)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        raise ValueError(f"{words!r}: write a value from 0 to {most:#x}")
    return Rewrite(table, field, value)


def _places(packet: RocePacket) -> dict[str, int]:
    """Return where the headers of a packet begin in its frame, by name."""
    table, at = NETWORKS[packet.kind], packet.transport
    places = {table.name: packet.network, BTH.name: at}
    if table is not GRH:
        places[UDP.name] = at - UDP.size
    at += BTH.size
    for header in HEADERS[packet.opcode]:
        places[header.name] = at
        at += header.size
    return places
