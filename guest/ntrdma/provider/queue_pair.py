"""Queue pairs of verbs: their states, told to the peer before a call returns."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from bluebridge.device.layout.ntrdma.commands import QueueState
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.ntrdma.engine.queue_pair import ENDLESS, QueuePair, Sizes
from bluebridge.guest.ntrdma.engine.regions import Domain
from bluebridge.guest.ntrdma.provider.resources import NtrdmaCq
from bluebridge.guest.ntrdma.service import Service
from bluebridge.guest.verbs.enums import QpState, QpType
from bluebridge.guest.verbs.transitions import StateChanges, check_step
from bluebridge.guest.verbs.values import AddressVector, QpAttr, QpInit, RecvWr, SendWr

_WIRE = {
    QpState.INIT: QueueState.INIT,
    QpState.RTR: QueueState.READY_TO_RECEIVE,
    QpState.RTS: QueueState.READY_TO_SEND,
}
_VERBS = {
    QueueState.ERROR: QpState.ERR,
    QueueState.RESET: QpState.RESET,
    QueueState.INIT: QpState.INIT,
    QueueState.READY_TO_RECEIVE: QpState.RTR,
    QueueState.SEND_DRAIN: QpState.SQD,
    QueueState.READY_TO_SEND: QpState.RTS,
}
_TIMEOUT_UNIT = 4.096e-6
_DEFAULT_TIMEOUT, _DEFAULT_RETRIES = 14, 7


class NtrdmaSrq:
    """Up to `max_wr` receives of up to `max_sge` pieces."""

    def __init__(self, service: Service, srqn: int, max_wr: int, max_sge: int) -> None:
        self.srqn = srqn
        self.max_wr, self.max_sge = max_wr, max_sge
        self._service = service
        self._pairs: list[QueuePair] = []
        self._waiting: deque[RecvWr] = deque()

    def attach(self, pair: QueuePair) -> None:
        """A queue pair takes from it; under the lock."""
        self._pairs.append(pair)

    def detach(self, pair: QueuePair) -> None:
        """Serve a queue pair no longer; its unused receives go to the others. Under the lock."""
        if pair in self._pairs:
            self._pairs.remove(pair)
            self.take_back(pair)

    def take_back(self, pair: QueuePair) -> None:
        """A queue pair cannot use its receives any more; under the lock."""
        self._waiting.extendleft(reversed(pair.receives.take_back()))
        self.deal()

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        with self._service.lock:
            try:
                for wr in (wrs,) if isinstance(wrs, RecvWr) else wrs:
                    self._take(wr)
            finally:
                self.deal()
                self._service.run()

    def deal(self) -> None:
        """Give what waits to queue pairs that can receive; under the lock."""
        able = [pair for pair in self._pairs if pair.receiving]
        while self._waiting and able:
            pair = min(able, key=lambda each: each.receives.outstanding)
            self._service.engine.own.post_receive(pair, self._waiting.popleft())
        for pair in able:
            self._service.engine.own.push_receives(pair)

    def _take(self, wr: RecvWr) -> None:
        used = len(self._waiting) + sum(pair.receives.used for pair in self._pairs)
        if used >= self.max_wr:
            raise VerbsError(f"the shared receive queue of {self.max_wr} entries is full")
        if len(wr.sg_list) > self.max_sge:
            raise VerbsError(f"{len(wr.sg_list)} pieces, the queue takes {self.max_sge}")
        self._waiting.append(RecvWr(wr.wr_id, tuple(wr.sg_list)))

    def destroy(self) -> None:
        """Free the shared receive queue, whose queue pairs are gone."""


@dataclass(slots=True, frozen=True)
class NtrdmaAddress(AddressVector):
    """The device at the other end, by its address."""

    device: bytes


class NtrdmaQp(StateChanges):
    """A reliable connected queue pair."""

    def __init__(self, service: Service, domain: Domain, init: QpInit) -> None:
        if init.type is not QpType.RC:
            raise VerbsError(f"NTRDMA has no {init.type.name} queue pairs")
        if not isinstance(init.send_cq, NtrdmaCq) or not isinstance(init.recv_cq, NtrdmaCq):
            raise VerbsError("the completion queue is not one of this device")
        if init.srq is not None and not isinstance(init.srq, NtrdmaSrq):
            raise VerbsError("the shared receive queue is not one of this device")
        self.type = init.type
        self._service, self._srq = service, init.srq
        srq = init.srq
        sizes = Sizes(
            init.max_send_wr,
            init.max_recv_wr if srq is None else srq.max_wr,
            init.max_send_sge,
            init.max_recv_sge if srq is None else srq.max_sge,
            init.max_inline,
            init.signal_all,
        )
        queues = init.send_cq.queue, init.recv_cq.queue
        own = service.engine.own
        try:
            made = service.call(lambda: own.create_pair(domain, sizes, queues), "queue pair")
        except MemoryError as error:
            raise VerbsError(f"no memory for a queue pair: {error}") from error
        self.pair = made.pair
        self.qpn = self.pair.key
        self._open = True
        if srq is not None:
            with service.lock:
                srq.attach(self.pair)

    @property
    def state(self) -> QpState:
        """The state of the queue pair, as its twin was told."""
        return _VERBS[self.pair.state]

    # -- states ---------------------------------------------------------------------------------

    def modify(self, attr: QpAttr) -> None:
        target = self.state if attr.state is None else attr.state
        check_step(self.state, target)
        service, pairs = self._service, self._service.engine.own.resources
        if target is QpState.RESET:
            self._take_back()
            service.call(lambda: pairs.reset(self.pair), "RESET")
            self.pair.access = self.pair.peer_key = 0
        elif target is QpState.ERR:
            service.call(lambda: pairs.stop(self.pair), "ERR")
            self._take_back()
        else:
            self._take_attributes(attr, target)
            service.call(lambda: pairs.modify(self.pair), target.name)
            self._continue()

    def _take_attributes(self, attr: QpAttr, target: QpState) -> None:
        pair, to = self.pair, attr.address_vector
        with self._service.lock:
            if target is QpState.RTR:
                if not isinstance(to, NtrdmaAddress) or attr.dest_qpn is None:
                    raise VerbsError("RTR needs an address vector and dest_qpn")
                pair.peer_key = attr.dest_qpn
            if attr.access is not None:
                pair.access = int(attr.access)
            if target is QpState.RTS:
                timeout = _DEFAULT_TIMEOUT if attr.timeout is None else attr.timeout
                retries = _DEFAULT_RETRIES if attr.retry_count is None else attr.retry_count
                pair.retry_seconds = _TIMEOUT_UNIT * (1 << timeout) * (retries + 1)
                pair.rnr_retries = ENDLESS if attr.rnr_retry is None else attr.rnr_retry
            pair.state = _WIRE[target]

    def _continue(self) -> None:
        """Let what was posted before leave, and receives of a shared queue come in."""
        with self._service.lock:
            if self._srq is not None:
                self._srq.deal()
            self._service.engine.own.schedule.make_runnable(self.pair.key)
            self._service.run()

    def _take_back(self) -> None:
        with self._service.lock:
            if self._srq is not None:
                self._srq.take_back(self.pair)

    def query_state(self) -> QpState:
        """Return the state now, after what has come from the peer."""
        with self._service.lock:
            self._service.progress()
            return self.state

    def destroy(self) -> None:
        if not self._open:
            return
        self._open = False
        with self._service.lock:
            if self._srq is not None:
                self._srq.detach(self.pair)
        pairs = self._service.engine.own.resources
        if not self._service.health.lost:
            self._service.call(lambda: pairs.remove(self.pair), "end of a QP")

    # -- posting --------------------------------------------------------------------------------

    def post_send(self, wrs: SendWr | Sequence[SendWr]) -> None:
        service = self._service
        service.health.check()
        with service.lock:
            try:
                if isinstance(wrs, SendWr):
                    service.engine.own.post_send(self.pair, wrs)
                else:
                    for wr in wrs:
                        service.engine.own.post_send(self.pair, wr)
            finally:
                service.run()

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post receives; they reach the peer before anything that is sent later."""
        if self._srq is not None:
            raise VerbsError("this queue pair has no receive queue of its own")
        service = self._service
        service.health.check()
        with service.lock:
            try:
                for wr in (wrs,) if isinstance(wrs, RecvWr) else wrs:
                    service.engine.own.post_receive(self.pair, wr)
            finally:
                service.engine.own.push_receives(self.pair)
                if not service.polls:  # else they leave with his next send, or look
                    service.run()
