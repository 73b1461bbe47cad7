"""The data of one request: every right is checked, on own regions and on twins of the peer's.

No byte moves before all of that.
"""

from __future__ import annotations

from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.guest.protocols.ntrdma.engine.entries import (
    IMMEDIATE,
    SOLICITED,
    network_order,
    pack_send,
)
from bluebridge.guest.protocols.ntrdma.engine.queue_pair import QueuePair
from bluebridge.guest.protocols.ntrdma.engine.regions import (
    INVALIDATABLE,
    Refused,
    Segment,
    copies,
    find,
    gather,
    total,
)
from bluebridge.guest.protocols.ntrdma.engine.remote import RemoteResources
from bluebridge.guest.protocols.ntrdma.engine.remote_pair import RemotePair
from bluebridge.guest.protocols.ntrdma.engine.send_request import SendRequest
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport
from bluebridge.guest.verbs.enums import AccessFlags
from bluebridge.guest.verbs.values import Sge

_SENDS = (WorkCode.SEND, WorkCode.SEND_INVALIDATE, WorkCode.SEND_IMMEDIATE)
_WRITES = (WorkCode.WRITE, WorkCode.WRITE_IMMEDIATE)
_READ, _WRITE = int(AccessFlags.REMOTE_READ), int(AccessFlags.REMOTE_WRITE)
_LOCAL = int(AccessFlags.LOCAL_WRITE)


class Wait(Exception):
    """A request has to wait for a receive, or for the peer's queue pair."""

    def __init__(self, for_receive: bool) -> None:
        super().__init__()
        self.for_receive = for_receive


class Ends(Exception):
    """A request ends here without the peer."""


class Placement:
    """Copies the data of requests to the peer."""

    def __init__(self, transport: Transport, remote: RemoteResources) -> None:
        self._transport, self._remote = transport, remote

    def place(self, pair: QueuePair, request: SendRequest) -> bytes:
        """Copy the data of a request and return the entry that announces it.

        If that is of an error, the pair is stopped.
        """
        code = request.code
        sources = self._own_memory(pair, request)
        twin = self._remote.pair(pair.peer_key)
        if twin is None or not twin.receives_from(pair.key) or pair.rings is None:
            raise Wait(for_receive=False)
        receive_key, status = 0, WorkStatus.OK
        targets: list[Segment] = []
        try:
            if code in _WRITES or code is WorkCode.READ:
                targets = self._remote_memory(twin, request)
            if code in _SENDS or code is WorkCode.WRITE_IMMEDIATE:
                receive = twin.next_receive()
                if receive is None:
                    raise Wait(for_receive=True)
                twin.take_receive()
                receive_key = receive[0]
                if code in _SENDS:
                    targets = self._receive_memory(twin, receive[1], request.length)
            if code is WorkCode.SEND_INVALIDATE:
                self._invalidate(twin, request.immediate)
        except Refused as refused:
            status = refused.status
        if status is WorkStatus.OK and code is not WorkCode.READ:
            if len(sources) == 1 == len(targets):
                self._transport.copy(sources[0][0], targets[0][0], sources[0][1])
            else:
                for source, target, length in copies(sources, targets):
                    self._transport.copy(source, target, length)
        pair.stopped = status is not WorkStatus.OK
        return self._entry(request, status, receive_key)

    def _own_memory(self, pair: QueuePair, request: SendRequest) -> list[Segment]:
        """Return the own memory of a request: its data, or the target of a read."""
        if request.staged is not None:
            return request.staged
        right = _LOCAL if request.code is WorkCode.READ else 0
        try:
            return gather(pair.domain.regions, request.pieces, right)
        except Refused as refused:
            raise Ends from refused

    def _remote_memory(self, twin: RemotePair, request: SendRequest) -> list[Segment]:
        """Return the memory at the peer that a write or a read names."""
        right = _READ if request.code is WorkCode.READ else _WRITE
        if twin.access is not None and not twin.access & right:
            raise Refused(WorkStatus.QUEUE_ACCESS)
        if not request.length:
            return []
        return find(twin.regions, request.rdma_key, request.rdma_address, request.length, right)

    def _receive_memory(self, twin: RemotePair, pieces: list[Sge], length: int) -> list[Segment]:
        """Return the memory of the peer's receive for the data."""
        try:
            targets = gather(twin.regions, pieces, _LOCAL)
        except Refused as refused:
            raise Refused(WorkStatus.RECV_PROTECTION) from refused
        if total(targets) < length:
            raise Refused(WorkStatus.RECV_OVERFLOW)
        return targets

    def _invalidate(self, twin: RemotePair, key: int) -> None:
        """Delete the twin of the region that this send invalidates: no later write uses it."""
        region = twin.regions.get(key)
        if region is None or not region.access & INVALIDATABLE:
            raise Refused(WorkStatus.INVALIDATION)
        self._remote.regions.drop(twin.regions, key)

    def _entry(self, request: SendRequest, status: WorkStatus, receive_key: int) -> bytes:
        code = request.code
        assert code is not None
        return pack_send(
            request.sequence | (SOLICITED if request.solicited else 0),
            code,
            status,
            receive_key,
            request.rdma_key,
            0 if code is WorkCode.READ else request.length & 0xFFFFFFFF,
            request.rdma_address,
            network_order(request.immediate) if code in IMMEDIATE else request.immediate,
            request.pieces if code is WorkCode.READ else (),
        )
