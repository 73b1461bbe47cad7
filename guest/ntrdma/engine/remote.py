"""Twins of the peer's resources, made and changed by its commands (v0.1 ntrdma_cmd.c)."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.layout.net.roce import ipv4_gid
from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma.commands import CommandCode, QueueState
from bluebridge.guest.ntrdma.engine.memory import COMPLETION, SEGMENT, Bells, Words
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.regions import Region, Segment
from bluebridge.guest.ntrdma.engine.remote_pair import MOST_ENTRIES, MOST_PIECES, RemotePair
from bluebridge.guest.ntrdma.engine.transport import Actions, CmArrived, Host, Transport

MOST_DOMAINS = 0x100
MOST_REGIONS = 1 << 16
MOST_SEGMENTS = 1 << 20
MOST_PAIRS = 0x1000


class CommandRefused(Exception):
    """The command cannot be carried out."""


def keyless(command: bytes) -> bytes:
    """Return the response OK to a command without a key."""
    op, pd_key = layout.RESPONSE.get(command, "op"), layout.RESPONSE.get(command, "pd_key")
    return bytes(layout.RESPONSE.pack(op=op, pd_key=pd_key, status=layout.OK))


def keyed(command: bytes, status: int = layout.OK, **more: int) -> bytes:
    """Return the response to a command with a key, with further fields."""
    form = layout.KEYED_RESPONSE
    head = {name: form.get(command, name) for name in ("op", "pd_key", "key")}
    return bytes(form.pack({**head, **more}, status=status))


class RemoteResources:
    """The twins of the peer's protection domains, regions and queue pairs."""

    def __init__(
        self,
        transport: Transport,
        words: Words,
        bells: Bells,
        peer: Peer,
        host: Host,
        actions: Actions,
    ) -> None:
        self._transport, self._words, self._bells = transport, words, bells
        self._peer, self._host, self._actions = peer, host, actions
        self._domains: dict[int, dict[int, Region]] = {}
        self._region_count = self._segment_count = 0
        self.pairs: dict[int, RemotePair] = {}
        self.by_bell: dict[int, RemotePair] = {}
        self._asker = bytes(16)
        """The peer's IPv6 address, once it has asked for one of this side's."""
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

    @property
    def count(self) -> int:
        """The number of twins of any kind."""
        return len(self.pairs) + len(self._domains) + self._region_count

    def execute(self, command: bytes) -> bytes:
        """Carry out a command of the peer and return the response."""
        op, pd_key = layout.RESPONSE.get(command, "op"), layout.RESPONSE.get(command, "pd_key")
        handler = self._handlers.get(op)
        try:
            if handler is None:
                raise CommandRefused
            return handler(command)
        except (CommandRefused, MemoryError):
            if handler is None or not CommandCode.MR_CREATE <= op <= CommandCode.QP_MODIFY:
                return bytes(layout.RESPONSE.pack(op=op, pd_key=pd_key, status=layout.FAILED))
            return keyed(command, layout.FAILED)

    def clear(self) -> None:
        """Delete all twins for a peer that begins anew."""
        for key in list(self.pairs):
            self._close_pair(key)
        self._domains.clear()
        self._region_count = self._segment_count = 0
        self._asker = bytes(16)

    # -- protection domains and regions ---------------------------------------------------------

    def _create_domain(self, command: bytes) -> bytes:
        key = layout.PD.get(command, "pd_key")
        if key in self._domains or key >= MOST_DOMAINS:
            raise CommandRefused
        self._domains[key] = {}
        return keyless(command)

    def _delete_domain(self, command: bytes) -> bytes:
        regions = self._domain(command)
        if regions or any(twin.regions is regions for twin in self.pairs.values()):
            raise CommandRefused
        del self._domains[layout.PD.get(command, "pd_key")]
        return keyless(command)

    def _domain(self, command: bytes) -> dict[int, Region]:
        found = self._domains.get(layout.PD.get(command, "pd_key"))
        if found is None:
            raise CommandRefused
        return found

    def _create_region(self, command: bytes) -> bytes:
        get = layout.MR_CREATE.get
        regions = self._domain(command)
        count, capacity = get(command, "count"), get(command, "capacity")
        if (
            get(command, "key") in regions
            or not 0 < count <= min(capacity, layout.CREATE_SEGMENTS)
            or self._region_count >= MOST_REGIONS
            or self._segment_count + capacity > MOST_SEGMENTS
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
        self._region_count += 1
        self._segment_count += capacity
        return keyed(command)

    def _append_region(self, command: bytes) -> bytes:
        get = layout.MR_APPEND.get
        region = self._domain(command).get(get(command, "key"))
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

    def _delete_region(self, command: bytes) -> bytes:
        regions, key = self._domain(command), layout.MR_DELETE.get(command, "key")
        if key not in regions:
            raise CommandRefused
        self.drop_region(regions, key)
        return keyed(command)

    def drop_region(self, regions: dict[int, Region], key: int) -> None:
        """Delete a region of the protection domain with these."""
        self._segment_count -= regions.pop(key).capacity
        self._region_count -= 1

    def _segments_of(self, command: bytes, start: int, count: int) -> list[Segment]:
        end = start + count * SEGMENT.size
        found = [SEGMENT.unpack_from(command, at) for at in range(start, end, SEGMENT.size)]
        if not all(length and self._transport.reaches(at, length) for at, length in found):
            raise CommandRefused
        return found

    # -- queue pairs ----------------------------------------------------------------------------

    def _create_pair(self, command: bytes) -> bytes:
        get = layout.QP_CREATE.get
        key, regions = get(command, "key"), self._domain(command)
        receives = get(command, "recv_capacity"), get(command, "recv_pieces")
        sends = get(command, "send_capacity"), get(command, "send_pieces")
        if (
            key in self.pairs
            or len(self.pairs) >= MOST_PAIRS
            or not max(receives[0], sends[0]) <= MOST_ENTRIES
            or not max(receives[1], sends[1]) <= MOST_PIECES
            or get(command, "recv_index") >= 2 * max(1, receives[0])
            or get(command, "send_index") >= 2 * max(1, sends[0])
            or not self._peer.has_bell(get(command, "completion_bell"))
            or get(command, "send_consumed") & 3
            or not self._transport.reaches(get(command, "send_consumed"), 4)
            or not self._transport.reaches(
                get(command, "send_completions"), max(1, sends[0]) * COMPLETION.size
            )
        ):
            raise CommandRefused
        starts = get(command, "recv_index"), get(command, "send_index")
        twin = RemotePair(self._transport, self._words, key, regions, receives, sends, starts)
        twin.completion_address = get(command, "send_completions")
        twin.consumed_address = get(command, "send_consumed")
        twin.completion_bell = get(command, "completion_bell")
        try:
            twin.bell = self._bells.observe()
        except MemoryError:
            twin.close()
            raise
        self.pairs[key] = self.by_bell[twin.bell] = twin
        return keyed(
            command,
            recv_entries=twin.receives.address,
            recv_produced=twin.recv_produced.address,
            send_entries=twin.sends.address,
            send_produced=twin.send_produced.address,
            send_bell=twin.bell,
        )

    def _modify_pair(self, command: bytes) -> bytes:
        get = layout.QP_MODIFY.get
        twin = self.pairs.get(get(command, "key"))
        try:
            state = QueueState(get(command, "state"))
        except ValueError as error:
            raise CommandRefused from error
        if twin is None:
            raise CommandRefused
        access = get(command, "access")
        twin.access = access if access & layout.ACCESS_TOLD else None
        twin.state, twin.peer_key = state, get(command, "peer_key")
        return keyed(command)

    def _delete_pair(self, command: bytes) -> bytes:
        key = layout.QP_DELETE.get(command, "key")
        if key not in self.pairs:
            raise CommandRefused
        self._close_pair(key)
        return keyed(command)

    def _close_pair(self, key: int) -> None:
        twin = self.pairs.pop(key)
        del self.by_bell[twin.bell]
        self._bells.forget(twin.bell)
        twin.state = QueueState.RESET
        twin.close()

    # -- the connection manager ------------------------------------------------------------------

    def _cm_message(self, command: bytes) -> bytes:
        form = layout.CM_MESSAGE
        mad, ip = form.get_raw(command, "mad"), form.get(command, "pd_key")
        sender = ipv4_gid(ip.to_bytes(4, "big")) if ip else self._asker
        self._actions.append(CmArrived(mad, sender))
        return keyless(command)

    def _resolve(self, command: bytes) -> bytes:
        form = layout.RESOLVE
        ip = form.get(command, "ip")
        if not ip:
            self._asker = form.get_raw(command, "asker")
        asked = ipv4_gid(ip.to_bytes(4, "big")) if ip else form.get_raw(command, "address")
        if not self._host.has_address(asked):
            raise CommandRefused
        return keyless(command)


def _extensions(command: bytes) -> bytes:
    """Say which extensions this side has; version 0.1 sends the command back."""
    values = {"tag": layout.EXTENSIONS_TAG, "extensions": layout.EXTENSIONS}
    return bytes(layout.RESPONSE.pack(op=CommandCode.NONE, status=layout.OK, **values))
