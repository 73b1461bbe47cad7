"""The requester: carries out posted sends, first the data, then the entries that announce it."""

from __future__ import annotations

from bluebridge.device.layout.ntrdma.commands import QueueState
from bluebridge.guest.protocols.ntrdma.engine.indices import distance
from bluebridge.guest.protocols.ntrdma.engine.local import LocalResources
from bluebridge.guest.protocols.ntrdma.engine.own_pairs import OwnPairs
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.placement import Ends, Placement, Wait
from bluebridge.guest.protocols.ntrdma.engine.queue_pair import ENDLESS, QueuePair
from bluebridge.guest.protocols.ntrdma.engine.remote_pair import CorruptRing
from bluebridge.guest.protocols.ntrdma.engine.schedule import Schedule
from bluebridge.guest.protocols.ntrdma.engine.send_request import SendRequest
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport
from bluebridge.guest.verbs.enums import WcStatus

BATCH = 16
"""The most entries of one queue pair that are carried out in one turn."""
MOST_UNDER_WAY = 128
"""The number of stores under way above which queues wait."""
FEW_UNDER_WAY = 64
"""The number of requests under way below which waiting queue pairs go on."""
RNR_SECONDS = 0.0005
"""The first pause before a missing receive is looked for again; it doubles each time."""
MOST_RNR_SECONDS = 0.01


class Requester:
    """Serves the send queues of own queue pairs."""

    def __init__(
        self,
        transport: Transport,
        peer: Peer,
        placement: Placement,
        local: LocalResources,
        pairs: OwnPairs,
        schedule: Schedule,
    ) -> None:
        self._transport, self._peer = transport, peer
        self._placement, self._local, self._pairs = placement, local, pairs
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
            pair = self._pairs.pair(runnable.popleft())
            if pair is None:
                continue
            if self.work(pair, now):
                runnable.append(pair.key)
                more = True
            elif pair.resume_at > now and pair.sends.queue:
                self._schedule.stall(pair.key, pair.resume_at)
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
                self._local.begin(pair, request, now)
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
            entry = self._placement.place(pair, request)
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
            self._pairs.fail(pair)
        return False
