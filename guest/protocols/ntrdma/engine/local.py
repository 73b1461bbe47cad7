"""The own resources of this side, and the commands that keep their twins at the peer."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from bluebridge.device.layout.fields import Struct, Value
from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma.commands import CommandCode, QueueState
from bluebridge.guest.protocols.ntrdma.engine.command_ring import CommandRequests
from bluebridge.guest.protocols.ntrdma.engine.fast_regions import FastRegion
from bluebridge.guest.protocols.ntrdma.engine.own_commands import (
    attributes,
    region_commands,
    succeeded,
)
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.queue_pair import RECEIVING, Domain, QueuePair, Rings
from bluebridge.guest.protocols.ntrdma.engine.regions import Region
from bluebridge.guest.protocols.ntrdma.engine.remote import MOST_DOMAINS
from bluebridge.guest.protocols.ntrdma.engine.sends import SendRequest
from bluebridge.guest.protocols.ntrdma.engine.transport import Transport
from bluebridge.guest.verbs.enums import WcStatus, WrOpcode
from bluebridge.guest.verbs.errors import VerbsError

Done = Callable[[bool], None]
"""The type of a call that takes whether a command was carried out.

A command whose peer is gone, and with it all to undo, counts as carried out.
"""
FIRST_PAIR = 0x10
_PAIR_NUMBERS = 1 << 24


class Event(Enum):
    """The kinds of asynchronous events."""

    PORT_UP = auto()
    PORT_DOWN = auto()
    PAIR_FAILED = auto()


def ignore(_: bool) -> None:
    """Do nothing: the caller does not wait for the end of a command."""


class LocalResources:
    """The protection domains, regions and queue pairs of this side.

    All calls return at once; `done` is called at their end.
    """

    def __init__(
        self,
        transport: Transport,
        peer: Peer,
        requests: CommandRequests,
        event: Callable[[Event, int], None],
        runnable: Callable[[QueuePair], None],
    ) -> None:
        """`event` is told asynchronous events, `runnable` of queue pairs that may go on."""
        self.domains: dict[int, Domain] = {}
        self.pairs: dict[int, QueuePair] = {}
        self._transport, self._peer, self._requests = transport, peer, requests
        self._event, self._runnable = event, runnable
        self._fast: dict[int, FastRegion] = {}
        self._draining = False
        self._next_pair = FIRST_PAIR

    def _send(
        self,
        form: Struct,
        op: CommandCode,
        values: dict[str, Value],
        done: Callable[[bytes | None], None],
    ) -> None:
        """Post a command; without a peer report that once nothing is under way any more."""
        if self._peer.ready or self._draining:
            self._requests.post(form.pack({"op": op, **values}), done)
        else:
            done(None)

    def _ask(self, form: Struct, op: CommandCode, done: Done, **values: Value) -> None:
        """Post a command whose response is a status only."""
        self._send(form, op, values, lambda response: done(succeeded(response)))

    def _drop(self, form: Struct, op: CommandCode, done: Done, **values: Value) -> None:
        """End a twin or what it does; a peer that refuses has none, which counts as success."""
        self._send(form, op, values, lambda response: done(True))

    # -- protection domains ---------------------------------------------------------------------

    def create_domain(self, done: Done = ignore) -> Domain:
        """Make a protection domain. Raises `VerbsError`."""
        key = next((n for n in range(MOST_DOMAINS) if n not in self.domains), None)
        if key is None:
            raise VerbsError(f"there are {MOST_DOMAINS} protection domains already")
        domain = self.domains[key] = Domain(key)

        def told(good: bool) -> None:
            if not good:
                self.domains.pop(key, None)
            done(good)

        self._ask(layout.PD, CommandCode.PD_CREATE, told, pd_key=key)
        return domain

    def delete_domain(self, domain: Domain, done: Done = ignore) -> None:
        """Delete a protection domain whose regions and queue pairs are gone."""
        if self.domains.pop(domain.key, None) is not None:
            self._drop(layout.PD, CommandCode.PD_DELETE, done, pd_key=domain.key)

    # -- regions --------------------------------------------------------------------------------

    def register(self, domain: Domain, region: Region, done: Done = ignore) -> None:
        """Let own work requests and the peer use a region; no one may if the peer refuses."""

        def told(good: bool) -> None:
            if not good:
                self.deregister(domain, region.key)
            done(good)

        domain.regions[region.key] = region
        self._tell_region(domain, region, told)

    def deregister(self, domain: Domain, key: int, done: Done = ignore) -> None:
        """Take a region away from the peer; when `done` is called, nothing uses it any more."""
        domain.regions.pop(key, None)
        self._drop(layout.MR_DELETE, CommandCode.MR_DELETE, done, pd_key=domain.key, key=key)

    def _tell_region(self, domain: Domain, region: Region, done: Done) -> None:
        pieces = list(region_commands(region))
        results: list[bool] = []

        def told(good: bool) -> None:
            results.append(good)
            if len(results) == len(pieces):
                done(all(results))

        def answered(response: bytes | None) -> None:
            told(succeeded(response))

        for command in pieces:
            layout.RESPONSE.set(command, "pd_key", domain.key)
            if self._peer.ready or self._draining:
                self._requests.post(command, answered)
            else:
                told(True)

    # -- registration by work requests ------------------------------------------------------------

    def add_fast_region(self, region: FastRegion) -> None:
        """Let REG_MR name this region."""
        self._fast[region.rkey >> 8] = region

    def remove_fast_region(self, region: FastRegion, done: Done = ignore) -> None:
        """Forget a region: REG_MR can no longer name it."""
        self._fast.pop(region.rkey >> 8, None)
        valid = region.invalidate()
        if valid is None:
            done(True)
        else:
            self.deregister(region.domain, valid.key, done)

    def begin(self, pair: QueuePair, request: SendRequest, now: float) -> None:
        """Carry out the first request of a queue pair, which is not for the peer.

        Those behind it go on at once if the peer carries out its commands before them.
        """
        wr = request.local
        assert wr is not None
        pair.sends.begin_local()
        if wr.opcode is WrOpcode.NOP:
            self._end_local(pair, request, WcStatus.SUCCESS)
            return
        done = self._local_ending(pair, request)
        if wr.opcode is WrOpcode.REG_MR:
            fast = wr.mr if isinstance(wr.mr, FastRegion) else None
            region = fast.register(pair.domain, wr) if fast is not None else None
            if region is not None:
                self._tell_region(pair.domain, region, done)
                self._hold(pair, request, now)
                return
        else:
            valid = self._invalidated(pair.domain, wr.invalidate_rkey)
            if valid is not None:
                self.deregister(pair.domain, valid.key, done)
                self._hold(pair, request, now)
                return
        self._end_local(pair, request, WcStatus.MW_BIND_ERR)

    def _hold(self, pair: QueuePair, request: SendRequest, now: float) -> None:
        """Let the queue wait for the answer, unless the commands are ahead of all that follows."""
        if self._peer.ready:
            self._requests.flush(now)
        ahead = self._peer.ordered and not self._requests.waiting
        if request.ending is None and not ahead:
            pair.held_by = request

    def _local_ending(self, pair: QueuePair, request: SendRequest) -> Done:
        epoch = pair.epoch

        def done(good: bool) -> None:
            if pair.epoch != epoch or request.ending is not None:
                return
            if pair.held_by is request:
                pair.held_by = None
            if pair.state is QueueState.READY_TO_SEND:
                status = WcStatus.SUCCESS if good else WcStatus.MW_BIND_ERR
                self._end_local(pair, request, status)
                self._runnable(pair)

        return done

    def _end_local(self, pair: QueuePair, request: SendRequest, status: WcStatus) -> None:
        pair.stopped = pair.stopped or status is not WcStatus.SUCCESS
        pair.sends.end_local(request, status)

    def _invalidated(self, domain: Domain, key: int) -> Region | None:
        """End a registration by work request and return its region, None if it is not valid."""
        fast = self._fast.get(key >> 8)
        if fast is None or fast.domain is not domain:
            return None
        if fast.registered is None or fast.registered.key != key:
            return None
        return fast.invalidate()

    def invalidate(self, domain: Domain, key: int) -> bool:
        """Note that the peer has invalidated a registration; returns False if it may not."""
        return self._invalidated(domain, key) is not None

    # -- queue pairs ----------------------------------------------------------------------------

    def new_pair_number(self) -> int:
        """Return a number for a queue pair that was not used lately."""
        while self._next_pair in self.pairs:
            self._next_pair = max(FIRST_PAIR, (self._next_pair + 1) % _PAIR_NUMBERS)
        number = self._next_pair
        self._next_pair = max(FIRST_PAIR, (number + 1) % _PAIR_NUMBERS)
        return number

    def pair(self, key: int) -> QueuePair | None:
        """Return the queue pair with number `key`, None if there is none."""
        return self.pairs.get(key)

    def add_pair(self, pair: QueuePair, done: Done = ignore) -> None:
        """Add a queue pair in state RESET; it is removed again when the peer refuses."""
        self.pairs[pair.key] = pair
        pair.sends.failed = lambda: self.fail(pair)
        pair.sends.resumed = lambda: self._runnable(pair)

        def told(good: bool) -> None:
            if not good:
                self.remove_pair(pair)
            done(good)

        self._create_twin(pair, told)

    def modify_pair(self, pair: QueuePair, done: Done = ignore) -> None:
        """Tell the peer of a queue pair's state, rights and peer."""
        values = attributes(pair)
        self._ask(layout.QP_MODIFY, CommandCode.QP_MODIFY, done, **values)

    def fail(self, pair: QueuePair) -> None:
        """Bring a pair to the error state after a failure, with an event."""
        if pair.state in RECEIVING:
            self.stop_pair(pair)
            self._event(Event.PAIR_FAILED, pair.key)

    def stop_pair(self, pair: QueuePair, done: Done = ignore) -> None:
        """Bring a pair to the error state; what is posted is flushed once the peer has stopped."""
        pair.state, epoch = QueueState.ERROR, pair.epoch

        def stopped(good: bool) -> None:
            if pair.epoch == epoch and pair.state is QueueState.ERROR:
                pair.flush()
            done(good)

        values = attributes(pair)
        self._drop(layout.QP_MODIFY, CommandCode.QP_MODIFY, stopped, **values)

    def reset_pair(self, pair: QueuePair, done: Done = ignore) -> None:
        """Bring a pair back to RESET with empty rings, here and at the peer."""

        def deleted(_: bool) -> None:
            pair.clear()
            self._create_twin(pair, done)

        self._delete_twin(pair, deleted)

    def remove_pair(self, pair: QueuePair, done: Done = ignore) -> None:
        """Free a queue pair."""

        def deleted(good: bool) -> None:
            pair.clear()
            pair.close()
            done(good)

        if self.pairs.pop(pair.key, None) is pair:
            self._delete_twin(pair, deleted)
        else:
            done(True)

    def _delete_twin(self, pair: QueuePair, done: Done) -> None:
        """Delete a twin: nothing is stored any more into its rings, which the peer frees."""
        pair.state, pair.rings = QueueState.RESET, None
        pair.epoch += 1
        code, key = CommandCode.QP_DELETE, pair.key
        self._drop(layout.QP_DELETE, code, done, pd_key=pair.domain.key, key=key)

    def _create_twin(self, pair: QueuePair, done: Done) -> None:
        pair.twin_is_new()
        epoch, sizes = pair.epoch, pair.sizes

        def answered(response: bytes | None) -> None:
            good = succeeded(response)
            if response is not None and good and pair.epoch == epoch:
                pair.rings = self._rings(response, pair)
                pair.push_receives(self._peer)
                self._runnable(pair)
            done(good)

        values: dict[str, Value] = {
            "pd_key": pair.domain.key,
            "key": pair.key,
            "recv_capacity": pair.receives.capacity,
            "recv_pieces": sizes.recv_pieces,
            "send_capacity": pair.sends.capacity,
            "send_pieces": sizes.send_pieces,
            "send_completions": pair.sends.completions.address,
            "send_consumed": pair.sends.consumed_word.address,
            "completion_bell": pair.send_cq.bell,
        }
        self._send(layout.QP_CREATE, CommandCode.QP_CREATE, values, answered)

    def _rings(self, response: bytes, pair: QueuePair) -> Rings | None:
        """Return the addresses of the twin's rings; None for impossible ones."""
        value = layout.KEYED_RESPONSE.get
        rings = Rings(
            value(response, "recv_entries"),
            value(response, "recv_produced"),
            value(response, "send_entries"),
            value(response, "send_produced"),
            value(response, "send_bell"),
        )
        reaches, sends = self._transport.reaches, pair.sends
        good = (
            not (rings.recv_produced | rings.send_produced) & 3
            and self._peer.has_bell(rings.send_bell)
            and reaches(rings.recv_entries, pair.receives.ring_bytes)
            and reaches(rings.send_entries, sends.ring.capacity * sends.ring.size)
            and reaches(rings.recv_produced, 4)
            and reaches(rings.send_produced, 4)
        )
        return rings if good else None

    # -- the peer comes and goes ------------------------------------------------------------------

    def enabled(self) -> None:
        """Make twins of everything at a peer that has none."""
        for domain in self.domains.values():
            self._ask(layout.PD, CommandCode.PD_CREATE, ignore, pd_key=domain.key)
            for region in domain.regions.values():
                self._tell_region(domain, region, ignore)
        for pair in self.pairs.values():
            if pair.state is not QueueState.ERROR:
                self._create_twin(pair, ignore)
                if pair.state is not QueueState.RESET:
                    self.modify_pair(pair)

    def quiescing(self) -> None:
        """Send nothing more; what is posted ends when nothing is under way any more."""
        self._draining = True
        for pair in self.pairs.values():
            pair.rings = None
            if pair.state in RECEIVING:
                pair.state = QueueState.ERROR
                self._event(Event.PAIR_FAILED, pair.key)

    def disabled(self) -> None:
        """Note that the peer is gone and nothing is under way."""
        self._draining = False
        self._requests.fail()
        for pair in tuple(self.pairs.values()):
            if pair.state is QueueState.ERROR and not pair.flushed:
                pair.flush()
