"""Twins of the peer's protection domains and regions, made and deleted by its commands."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.guest.protocols.ntrdma.engine.entries import SEGMENT
from bluebridge.guest.protocols.ntrdma.engine.regions import Region, Regions, Segment
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport

MOST_DOMAINS = 0x100
MOST_REGIONS = 1 << 16
MOST_SEGMENTS = 1 << 20


class CommandRefused(Exception):
    """The command cannot be carried out."""


def keyless(command: bytes) -> bytes:
    """Return the response OK to a command without a key."""
    op, pd_key = layout.RESPONSE.get(command, "op"), layout.RESPONSE.get(command, "pd_key")
    return bytes(layout.RESPONSE.pack(op=op, pd_key=pd_key, status=layout.OK))


def keyed(command: bytes, **more: int) -> bytes:
    """Return the response OK to a command with a key, with further fields."""
    form = layout.KEYED_RESPONSE
    head = {name: form.get(command, name) for name in ("op", "pd_key", "key")}
    return bytes(form.pack({**head, **more}, status=layout.OK))


class RemoteRegions:
    """The twins of the peer's protection domains, and of the regions in each."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._domains: dict[int, dict[int, Region]] = {}
        self._regions = self._segments = 0

    @property
    def count(self) -> int:
        """The number of twins of both kinds."""
        return len(self._domains) + self._regions

    def clear(self) -> None:
        """Delete the twins of all protection domains and regions."""
        self._domains.clear()
        self._regions = self._segments = 0

    def create_domain(self, command: bytes) -> bytes:
        """Make a protection domain."""
        key = layout.PD.get(command, "pd_key")
        if key in self._domains or key >= MOST_DOMAINS:
            raise CommandRefused
        self._domains[key] = {}
        return keyless(command)

    def delete_domain(self, command: bytes) -> bytes:
        """Delete a protection domain, which has no regions."""
        if self.domain(command):
            raise CommandRefused
        del self._domains[layout.PD.get(command, "pd_key")]
        return keyless(command)

    def domain(self, command: bytes) -> dict[int, Region]:
        """Return the regions of the protection domain that a command names."""
        found = self._domains.get(layout.PD.get(command, "pd_key"))
        if found is None:
            raise CommandRefused
        return found

    def create_region(self, command: bytes) -> bytes:
        """Make a region with its first segments."""
        get = layout.MR_CREATE.get
        regions = self.domain(command)
        count, capacity = get(command, "count"), get(command, "capacity")
        if (
            get(command, "key") in regions
            or not 0 < count <= min(capacity, layout.CREATE_SEGMENTS)
            or self._regions >= MOST_REGIONS
            or self._segments + capacity > MOST_SEGMENTS
        ):
            raise CommandRefused
        region = Region(
            get(command, "key"),
            get(command, "access"),
            get(command, "address"),
            get(command, "length"),
            capacity,
        )
        if not region.append(self._segments_of(command, layout.CREATE_LIST, count)):
            raise CommandRefused
        regions[region.key] = region
        self._regions += 1
        self._segments += capacity
        return keyed(command)

    def append_region(self, command: bytes) -> bytes:
        """Append segments to a region that is not complete."""
        get = layout.MR_APPEND.get
        region = self.domain(command).get(get(command, "key"))
        count = get(command, "count")
        if (
            region is None
            or get(command, "capacity") != region.capacity
            or get(command, "position") != len(region.segments)
            or not 0 < count <= layout.APPEND_SEGMENTS
            or not region.append(self._segments_of(command, layout.APPEND_LIST, count))
        ):
            raise CommandRefused
        return keyed(command)

    def delete_region(self, command: bytes) -> bytes:
        """Delete a region."""
        region = self.domain(command).pop(layout.MR_DELETE.get(command, "key"), None)
        if region is None:
            raise CommandRefused
        self._regions -= 1
        self._segments -= region.capacity
        return keyed(command)

    def drop(self, regions: Regions, key: int) -> None:
        """Delete a region, of the domain with these, that this side has invalidated."""
        for each in self._domains.values():
            if each is regions and (region := each.pop(key, None)) is not None:
                self._regions -= 1
                self._segments -= region.capacity

    def _segments_of(self, command: bytes, start: int, count: int) -> list[Segment]:
        end = start + count * SEGMENT.size
        found = [SEGMENT.unpack_from(command, at) for at in range(start, end, SEGMENT.size)]
        if not all(length and self._transport.reaches(at, length) for at, length in found):
            raise CommandRefused
        return found
