"""Twins of the peer's resources, made and changed by its commands (v0.1 ntrdma_cmd.c)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma.commands import CommandCode, QueueState
from bluebridge.guest.protocols.ntrdma.engine.bells import Bells, Observer
from bluebridge.guest.protocols.ntrdma.engine.entries import COMPLETION, SEGMENT
from bluebridge.guest.protocols.ntrdma.engine.memory import Words
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.regions import Region, Segment
from bluebridge.guest.protocols.ntrdma.engine.remote_pair import (
    MOST_ENTRIES,
    MOST_PIECES,
    RemotePair,
)
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport

MOST_DOMAINS = 0x100
MOST_PAIRS = 0x1000
MOST_REGIONS = 1 << 16
MOST_SEGMENTS = 1 << 20


class CommandRefused(Exception):
    """The command cannot be carried out."""


class RemoteOwner(Protocol):
    """The parts of the engine that the peer's commands reach besides twins of its objects."""

    def twin_rang(self, twin: RemotePair) -> None:
        """Note that the peer has sent to a twin."""

    def cm_message(self, mad: bytes, ip: int) -> None:
        """Take a CM message of the peer at `ip`, without its first 8 bytes."""

    def has_address(self, ip: int) -> bool:
        """Return True if an IPv4 address is this side's."""


class RemoteResources:
    """The twins of the peer's protection domains, regions and queue pairs."""

    def __init__(
        self, transport: Transport, words: Words, bells: Bells, peer: Peer, owner: RemoteOwner
    ) -> None:
        self._transport, self._words, self._bells = transport, words, bells
        self._peer, self._owner = peer, owner
        self._domains: dict[int, dict[int, Region]] = {}
        self.pairs: dict[int, tuple[RemotePair, Observer]] = {}
        self._regions = self._segments = 0
        self._handlers: dict[int, Callable[[bytes], bytes]] = {
            CommandCode.NONE: _extensions,
            CommandCode.PD_CREATE: self._create_domain,
            CommandCode.PD_DELETE: self._delete_domain,
            CommandCode.MR_CREATE: self._create_region,
            CommandCode.MR_DELETE: self._delete_region,
            CommandCode.MR_APPEND: self._append_region,
            CommandCode.QP_CREATE: self._create_pair,
            CommandCode.QP_DELETE: self._delete_pair,
            CommandCode.QP_MODIFY: self._modify_pair,
            CommandCode.CM_MESSAGE: self._cm_message,
            CommandCode.RESOLVE: self._resolve,
        }

    def pair(self, key: int) -> RemotePair | None:
        """Return the twin of the peer's queue pair `key`, None if there is none."""
        found = self.pairs.get(key)
        return None if found is None else found[0]

    @property
    def count(self) -> int:
        """The number of twins of any kind."""
        return len(self._domains) + len(self.pairs) + self._regions

    def execute(self, command: bytes) -> bytes:
        """Carry out a command of the peer and return the response."""
        op, pd_key = layout.RESPONSE.get(command, "op"), layout.RESPONSE.get(command, "pd_key")
        handler = self._handlers.get(op)
        keyless = op in (CommandCode.PD_CREATE, CommandCode.PD_DELETE) or op > CommandCode.QP_MODIFY
        try:
            if handler is None:
                raise CommandRefused
            return handler(command)
        except (CommandRefused, MemoryError):
            if keyless or handler is None:
                return bytes(layout.RESPONSE.pack(op=op, pd_key=pd_key, status=layout.FAILED))
            key = layout.KEYED_RESPONSE.get(command, "key")
            form = layout.KEYED_RESPONSE
            return bytes(form.pack(op=op, pd_key=pd_key, key=key, status=layout.FAILED))

    def clear(self) -> None:
        """Delete all twins for a peer that begins anew."""
        for key in list(self.pairs):
            self._close_pair(key)
        self._domains.clear()
        self._regions = self._segments = 0

    # -- protection domains ---------------------------------------------------------------------

    def _create_domain(self, command: bytes) -> bytes:
        key = layout.PD.get(command, "pd_key")
        if key in self._domains or key >= MOST_DOMAINS:
            raise CommandRefused
        self._domains[key] = {}
        return _keyless(command)

    def _delete_domain(self, command: bytes) -> bytes:
        key = layout.PD.get(command, "pd_key")
        if self._domain(command) or any(
            twin.regions is self._domains[key] for twin, _ in self.pairs.values()
        ):
            raise CommandRefused
        del self._domains[key]
        return _keyless(command)

    def _domain(self, command: bytes) -> dict[int, Region]:
        found = self._domains.get(layout.PD.get(command, "pd_key"))
        if found is None:
            raise CommandRefused
        return found

    # -- regions --------------------------------------------------------------------------------

    def _create_region(self, command: bytes) -> bytes:
        value = _values(layout.MR_CREATE, command)
        regions = self._domain(command)
        count, capacity = value("count"), value("capacity")
        if (
            value("key") in regions
            or not 0 < count <= min(capacity, layout.CREATE_SEGMENTS)
            or self._regions >= MOST_REGIONS
            or self._segments + capacity > MOST_SEGMENTS
        ):
            raise CommandRefused
        region = Region(value("key"), value("access"), value("address"), value("length"), capacity)
        if not region.append(self._segments_of(command, layout.CREATE_LIST, count)):
            raise CommandRefused
        regions[region.key] = region
        self._regions += 1
        self._segments += capacity
        return _keyed(command)

    def _append_region(self, command: bytes) -> bytes:
        value = _values(layout.MR_APPEND, command)
        region = self._domain(command).get(value("key"))
        count = value("count")
        if (
            region is None
            or value("capacity") != region.capacity
            or value("position") != len(region.segments)
            or not 0 < count <= layout.APPEND_SEGMENTS
            or not region.append(self._segments_of(command, layout.APPEND_LIST, count))
        ):
            raise CommandRefused
        return _keyed(command)

    def _delete_region(self, command: bytes) -> bytes:
        region = self._domain(command).pop(layout.MR_DELETE.get(command, "key"), None)
        if region is None:
            raise CommandRefused
        self._regions -= 1
        self._segments -= region.capacity
        return _keyed(command)

    def drop_region(self, twin: RemotePair, key: int) -> None:
        """Delete the twin of a region that this side has invalidated."""
        for regions in self._domains.values():
            if regions is twin.regions and (region := regions.pop(key, None)) is not None:
                self._regions -= 1
                self._segments -= region.capacity

    def _segments_of(self, command: bytes, start: int, count: int) -> list[Segment]:
        end = start + count * SEGMENT.size
        found = [SEGMENT.unpack_from(command, at) for at in range(start, end, SEGMENT.size)]
        if not all(length and self._transport.reaches(at, length) for at, length in found):
            raise CommandRefused
        return found

    # -- queue pairs ----------------------------------------------------------------------------

    def _create_pair(self, command: bytes) -> bytes:
        value = _values(layout.QP_CREATE, command)
        key, regions = value("key"), self._domain(command)
        receives = value("recv_capacity"), value("recv_pieces")
        sends = value("send_capacity"), value("send_pieces")
        if (
            key in self.pairs
            or len(self.pairs) >= MOST_PAIRS
            or not max(receives[0], sends[0]) <= MOST_ENTRIES
            or not max(receives[1], sends[1]) <= MOST_PIECES
            or value("recv_index") >= 2 * max(1, receives[0])
            or value("send_index") >= 2 * max(1, sends[0])
            or not self._peer.has_bell(value("completion_bell"))
            or value("send_consumed") & 3
            or not self._transport.reaches(value("send_consumed"), 4)
            or not self._transport.reaches(
                value("send_completions"), max(1, sends[0]) * COMPLETION.size
            )
        ):
            raise CommandRefused
        starts = value("recv_index"), value("send_index")
        twin = RemotePair(self._transport, self._words, key, regions, receives, sends, starts)
        twin.completion_address = value("send_completions")
        twin.consumed_address = value("send_consumed")
        twin.completion_bell = value("completion_bell")
        try:
            observer = self._bells.observe(lambda: self._owner.twin_rang(twin))
        except MemoryError:
            twin.close()
            raise
        twin.bell = observer.index
        self.pairs[key] = twin, observer
        return _keyed(
            command,
            recv_entries=twin.receives.address,
            recv_produced=twin.recv_produced.address,
            send_entries=twin.sends.address,
            send_produced=twin.send_produced.address,
            send_bell=observer.index,
        )

    def _modify_pair(self, command: bytes) -> bytes:
        value = _values(layout.QP_MODIFY, command)
        twin = self.pair(value("key"))
        try:
            state = QueueState(value("state"))
        except ValueError as error:
            raise CommandRefused from error
        if twin is None:
            raise CommandRefused
        access = value("access")
        twin.access = access if access & layout.ACCESS_TOLD else None
        twin.state, twin.peer_key = state, value("peer_key")
        return _keyed(command)

    def _delete_pair(self, command: bytes) -> bytes:
        key = layout.QP_DELETE.get(command, "key")
        if key not in self.pairs:
            raise CommandRefused
        self._close_pair(key)
        return _keyed(command)

    def _close_pair(self, key: int) -> None:
        twin, observer = self.pairs.pop(key)
        self._bells.forget(observer)
        twin.state = QueueState.RESET
        twin.close()

    # -- the connection manager ------------------------------------------------------------------

    def _cm_message(self, command: bytes) -> bytes:
        form = layout.CM_MESSAGE
        self._owner.cm_message(form.get_raw(command, "mad"), form.get(command, "pd_key"))
        return _keyless(command)

    def _resolve(self, command: bytes) -> bytes:
        if not self._owner.has_address(layout.RESOLVE.get(command, "ip")):
            raise CommandRefused
        return _keyless(command)


def _values(table: Struct, command: bytes) -> Callable[[str], int]:
    return lambda name: table.get(command, name)


def _extensions(command: bytes) -> bytes:
    """Say which extensions this side has; version 0.1 sends the command back."""
    values = {"tag": layout.EXTENSIONS_TAG, "extensions": layout.EXTENSIONS}
    return bytes(layout.RESPONSE.pack(op=CommandCode.NONE, status=layout.OK, **values))


def _keyless(command: bytes) -> bytes:
    op, pd_key = layout.RESPONSE.get(command, "op"), layout.RESPONSE.get(command, "pd_key")
    return bytes(layout.RESPONSE.pack(op=op, pd_key=pd_key, status=layout.OK))


def _keyed(command: bytes, **more: int) -> bytes:
    form = layout.KEYED_RESPONSE
    head = {name: form.get(command, name) for name in ("op", "pd_key", "key")}
    return bytes(form.pack({**head, **more}, status=layout.OK))
