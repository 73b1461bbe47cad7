"""The requester: carries out posted sends, first the data, then the entries that announce it."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma.commands import QueueState
from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.guest.ntrdma.engine.completions import Schedule
from bluebridge.guest.ntrdma.engine.memory import (
    IMMEDIATE,
    SOLICITED,
    SendEntry,
    distance,
    network_order,
)
from bluebridge.guest.ntrdma.engine.own_resources import OwnResources
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.queue_pair import ENDLESS, QueuePair
from bluebridge.guest.ntrdma.engine.regions import (
    INVALIDATABLE,
    Refused,
    Segment,
    copies,
    find,
    gather,
    total,
)
from bluebridge.guest.ntrdma.engine.remote import RemoteResources
from bluebridge.guest.ntrdma.engine.remote_pair import CorruptRing, RemotePair
from bluebridge.guest.ntrdma.engine.sends import SendRequest
from bluebridge.guest.verbs.enums import AccessFlags, WcStatus
from bluebridge.guest.verbs.values import Sge

_SENDS = (WorkCode.SEND, WorkCode.SEND_INVALIDATE, WorkCode.SEND_IMMEDIATE)
_WRITES = (WorkCode.WRITE, WorkCode.WRITE_IMMEDIATE)
_READ, _WRITE = int(AccessFlags.REMOTE_READ), int(AccessFlags.REMOTE_WRITE)
_LOCAL = int(AccessFlags.LOCAL_WRITE)

BATCH = 16
"""The most entries of one queue pair that are carried out in one turn."""
MOST_UNDER_WAY = 128
"""The number of stores under way above which queues wait."""
FEW_UNDER_WAY = 64
"""The number of requests under way below which waiting queue pairs go on."""
RNR_SECONDS = 0.0005
"""The first pause before a missing receive is looked for again; it doubles each time."""
MOST_RNR_SECONDS = 0.01


class Wait(Exception):
    """A request has to wait for a receive, or for the peer's queue pair."""

    def __init__(self, for_receive: bool) -> None:
        super().__init__()
        self.for_receive = for_receive


class Ends(Exception):
    """A request ends here without the peer."""


class Requester:
    """Serves the send queues of own queue pairs."""

    def __init__(
        self, peer: Peer, remote: RemoteResources, own: OwnResources, schedule: Schedule
    ) -> None:
        self._transport, self._peer = peer.transport, peer
        self._remote, self._own = remote, own
        self._schedule = schedule
        self._throttled = False
        self._done = 0
        """The number of stores that were carried out at the last look."""

    def throttled(self) -> bool:
        """Return True if so much is under way that queues have to wait."""
        most = FEW_UNDER_WAY if self._throttled else MOST_UNDER_WAY
        posted = self._transport.posted
        if posted - self._done > most:
            self._done = self._transport.done
        self._throttled = posted - self._done > most
        return self._throttled

    def serve(self, now: float) -> bool:
        """Serve each queue pair once; returns True if another round makes sense."""
        more = False
        runnable = self._schedule.runnable
        for _ in range(len(runnable)):
            if self.throttled():
                return False
            pair = self._own.pairs.get(runnable.popleft())
            if pair is None:
                continue
            if self.work(pair, now):
                runnable.append(pair.key)
                more = True
            elif pair.resume_at > now and pair.sends.queue:
                self._schedule.stalled[pair.key] = pair.resume_at
        return more

    def work(self, pair: QueuePair, now: float) -> bool:
        """Serve a queue pair for a turn; returns True if it could go on at once."""
        sends, rings = pair.sends, pair.rings
        if pair.state is not QueueState.READY_TO_SEND or pair.held_by or pair.stopped:
            return False
        first = sends.produced
        going = True
        while sends.queue and going and now >= pair.resume_at:
            if distance(first, sends.produced, sends.capacity) >= BATCH or self.throttled():
                break
            request = sends.queue[0]
            if sends.held_by_reads(request):
                break
            if request.code is None:
                self._own.begin(pair, request, now)
                going = pair.held_by is None and not pair.stopped
            else:
                going = self._try(pair, request, now)
            going = going and pair.state is QueueState.READY_TO_SEND
        count = distance(first, sends.produced, sends.capacity)
        if count and rings is not None:
            sends.ring.push(rings.send_entries, first, count)
            self._peer.publish(rings.send_produced, sends.produced, rings.send_bell)
        waits = not sends.queue or sends.held_by_reads(sends.queue[0])
        return going and not waits and now >= pair.resume_at

    def _try(self, pair: QueuePair, request: SendRequest, now: float) -> bool:
        """Carry out one request; False when those behind it have to wait."""
        try:
            entry = self._place(pair, request)
        except Wait as wait:
            return self._wait(pair, wait.for_receive, now)
        except Ends:
            return self._end(pair, WcStatus.LOC_PROT_ERR)
        except CorruptRing:
            return self._end(pair, WcStatus.REM_OP_ERR)
        pair.tries, pair.waiting_since = 0, None
        pair.sends.fly(entry)
        return not pair.stopped

    def _wait(self, pair: QueuePair, for_receive: bool, now: float) -> bool:
        """Plan a later try, or end with an error when the queue pair's patience is over."""
        if pair.waiting_since is None:
            pair.waiting_since = now
        if for_receive:
            if pair.rnr_retries != ENDLESS and pair.tries > pair.rnr_retries:
                return self._end(pair, WcStatus.RNR_RETRY_EXC_ERR)
        elif now - pair.waiting_since > pair.retry_seconds:
            return self._end(pair, WcStatus.RETRY_EXC_ERR)
        pair.resume_at = now + min(RNR_SECONDS * (1 << min(pair.tries, 8)), MOST_RNR_SECONDS)
        pair.tries += 1
        return False

    def _end(self, pair: QueuePair, status: WcStatus) -> bool:
        """End the first request with an error, once all before it have ended."""
        if not pair.sends.flying:
            pair.sends.end_first(status)
            self._own.fail(pair)
        return False

    # -- the data of a request --------------------------------------------------------------------

    def _place(self, pair: QueuePair, request: SendRequest) -> bytes:
        """Copy the data of a request and return the entry that announces it.

        If that is of an error, the pair is stopped.
        """
        code = request.code
        sources = self._own_memory(pair, request)
        twin = self._remote.pairs.get(pair.peer_key)
        if twin is None or not twin.receives_from(pair.key) or pair.rings is None:
            raise Wait(for_receive=False)
        receive_key, status = 0, WorkStatus.OK
        targets: list[Segment] = []
        try:
            if code in _WRITES or code is WorkCode.READ:
                targets = self._remote_memory(twin, request)
            if code in _SENDS or code is WorkCode.WRITE_IMMEDIATE:
                receive = twin.take_receive()
                if receive is None:
                    raise Wait(for_receive=True)
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
        if request.staged is not None:
            return request.staged
        right = _LOCAL if request.code is WorkCode.READ else 0
        try:
            return gather(pair.domain.regions, request.pieces, right)
        except Refused as refused:
            raise Ends from refused

    def _remote_memory(self, twin: RemotePair, request: SendRequest) -> list[Segment]:
        right = _READ if request.code is WorkCode.READ else _WRITE
        if twin.access is not None and not twin.access & right:
            raise Refused(WorkStatus.QUEUE_ACCESS)
        if not request.length:
            return []
        return find(twin.regions, request.rdma_key, request.rdma_address, request.length, right)

    def _receive_memory(self, twin: RemotePair, pieces: list[Sge], length: int) -> list[Segment]:
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
        self._remote.drop_region(twin.regions, key)

    def _entry(self, request: SendRequest, status: WorkStatus, receive_key: int) -> bytes:
        code = request.code
        assert code is not None
        return SendEntry(
            request.sequence | (SOLICITED if request.solicited else 0),
            code,
            status,
            receive_key,
            request.rdma_key,
            0 if code is WorkCode.READ else request.length & 0xFFFFFFFF,
            request.rdma_address,
            network_order(request.immediate) if code in IMMEDIATE else request.immediate,
            request.pieces if code is WorkCode.READ else (),
        ).pack()
