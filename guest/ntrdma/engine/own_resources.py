"""Domains, regions and queue pairs of this side, and the commands that keep their twins."""

from __future__ import annotations

from typing import TypeVar

from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma.commands import CommandCode, QueueState
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.ntrdma.engine.completions import Schedule
from bluebridge.guest.ntrdma.engine.own_commands import (
    CreateDomain,
    CreatePair,
    CreateTwin,
    LocalWork,
    OwnCommands,
    PairOperation,
    Register,
    RemovePair,
    ResetPair,
    StopPair,
)
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.queue_pair import RECEIVING, QueuePair
from bluebridge.guest.ntrdma.engine.regions import Domain, FastRegion, Region
from bluebridge.guest.ntrdma.engine.remote import MOST_DOMAINS
from bluebridge.guest.ntrdma.engine.sends import SendRequest
from bluebridge.guest.ntrdma.engine.transport import Actions, Event, Happened, Operation
from bluebridge.guest.verbs.enums import WcStatus, WrOpcode

FIRST_PAIR = 0x10
_PAIR_NUMBERS = 1 << 24
Twin = TypeVar("Twin", bound=CreateTwin)


class OwnResources:
    """The domains, regions and queue pairs of this side, the last by number.

    All calls return at once, with an operation that ends when the peer has answered.
    """

    def __init__(
        self, peer: Peer, commands: OwnCommands, schedule: Schedule, actions: Actions
    ) -> None:
        self.domains: dict[int, Domain] = {}
        self.pairs: dict[int, QueuePair] = {}
        self._fast: dict[int, FastRegion] = {}
        self._peer, self._commands = peer, commands
        self._schedule, self._actions = schedule, actions
        self._next_pair = FIRST_PAIR

    # -- protection domains ---------------------------------------------------------------------

    def create_domain(self) -> CreateDomain:
        """Make a protection domain. Raises `VerbsError`."""
        key = next((n for n in range(MOST_DOMAINS) if n not in self.domains), None)
        if key is None:
            raise VerbsError(f"there are {MOST_DOMAINS} protection domains already")
        domain = self.domains[key] = Domain(key)
        return self._commands.post(_command(CommandCode.PD_CREATE, domain), CreateDomain(domain))

    def delete_domain(self, domain: Domain) -> Operation:
        """Delete a protection domain whose regions and queue pairs are gone."""
        self.domains.pop(domain.key, None)
        return self._commands.post(_command(CommandCode.PD_DELETE, domain), Operation(lenient=True))

    # -- regions --------------------------------------------------------------------------------

    def register(self, domain: Domain, region: Region) -> Operation:
        """Let own work requests and the peer use a region; no one may if the peer refuses."""
        domain.regions[region.key] = region
        return self._commands.post_region(domain, region, Register(domain, region))

    def deregister(self, domain: Domain, key: int, operation: Operation | None = None) -> Operation:
        """Take a region away from the peer; when that has ended nothing uses it any more."""
        domain.regions.pop(key, None)
        command = layout.MR_DELETE.pack(op=CommandCode.MR_DELETE, pd_key=domain.key, key=key)
        return self._commands.post(command, operation or Operation(lenient=True))

    # -- registration by work requests ------------------------------------------------------------

    def add_fast_region(self, region: FastRegion) -> None:
        """Let REG_MR name this region."""
        self._fast[region.rkey >> 8] = region

    def remove_fast_region(self, region: FastRegion) -> Operation:
        """Forget a region: REG_MR can no longer name it."""
        self._fast.pop(region.rkey >> 8, None)
        valid = region.invalidate()
        if valid is not None:
            return self.deregister(region.domain, valid.key)
        operation = Operation()
        operation.good = True  # the peer knows of nothing
        return operation

    def begin(self, pair: QueuePair, request: SendRequest, now: float) -> None:
        """Carry out the first request of a queue pair, which is not for the peer.

        Those behind it go on at once if the peer carries out its commands before them.
        """
        wr = request.local
        assert wr is not None
        pair.sends.begin_local()
        if wr.opcode is WrOpcode.NOP:
            self._end_work(pair, request, WcStatus.SUCCESS)
            return
        operation = LocalWork(pair, request, lenient=wr.opcode is WrOpcode.LOCAL_INV)
        if wr.opcode is WrOpcode.REG_MR:
            fast = wr.mr if isinstance(wr.mr, FastRegion) else None
            region = fast.register(pair.domain, wr) if fast is not None else None
            if region is not None:
                self._commands.post_region(pair.domain, region, operation)
        else:
            region = self.invalidate(pair.domain, wr.invalidate_rkey)
            if region is not None:
                self.deregister(pair.domain, region.key, operation)
        if region is None:
            self._end_work(pair, request, WcStatus.MW_BIND_ERR)
        elif not self._commands.ahead(now):
            pair.held_by = request

    def _work_ended(self, work: LocalWork) -> None:
        pair, request = work.pair, work.request
        if pair.epoch != work.epoch or request.ending is not None:
            return
        if pair.held_by is request:
            pair.held_by = None
        if pair.state is QueueState.READY_TO_SEND:
            status = WcStatus.MW_BIND_ERR if work.refused else WcStatus.SUCCESS
            self._end_work(pair, request, status)
            self._schedule.make_runnable(pair.key)

    def _end_work(self, pair: QueuePair, request: SendRequest, status: WcStatus) -> None:
        pair.stopped = pair.stopped or status is not WcStatus.SUCCESS
        pair.sends.end_local(request, status)

    def invalidate(self, domain: Domain, key: int) -> Region | None:
        """End a registration by work request and return its region, None if it is not valid."""
        fast = self._fast.get(key >> 8)
        if fast is None or fast.domain is not domain:
            return None
        if fast.registered is None or fast.registered.key != key:
            return None
        return fast.invalidate()

    # -- queue pairs ----------------------------------------------------------------------------

    def new_number(self) -> int:
        """Return a number for a queue pair that was not used lately."""
        while self._next_pair in self.pairs:
            self._next_pair = max(FIRST_PAIR, (self._next_pair + 1) % _PAIR_NUMBERS)
        number = self._next_pair
        self._next_pair = max(FIRST_PAIR, (number + 1) % _PAIR_NUMBERS)
        return number

    def add(self, pair: QueuePair) -> CreatePair:
        """Add a queue pair in state RESET; it is removed again when the peer refuses."""
        self.pairs[pair.key] = pair
        return self._create_twin(CreatePair(pair))

    def modify(self, pair: QueuePair) -> Operation:
        """Tell the peer of a queue pair's state, rights and peer."""
        return self._tell_state(Operation(), pair)

    def stop(self, pair: QueuePair) -> Operation:
        """Bring a pair to the error state; what is posted is flushed once the peer has stopped."""
        pair.state = QueueState.ERROR
        return self._tell_state(StopPair(pair, lenient=True), pair)

    def fail(self, pair: QueuePair) -> None:
        """Bring a pair to the error state after a failure, with an event."""
        if pair.state in RECEIVING:
            self.stop(pair)
            self._actions.append(Happened(Event.PAIR_FAILED, pair.key))

    def reset(self, pair: QueuePair) -> Operation:
        """Bring a pair back to RESET with empty rings, here and at the peer."""
        return self._delete_twin(ResetPair(pair, lenient=True))

    def remove(self, pair: QueuePair) -> Operation:
        """Free a queue pair; one that is gone already stays so."""
        operation = RemovePair(pair, lenient=True)
        if self.pairs.pop(pair.key, None) is pair:
            return self._delete_twin(operation)
        operation.good = True
        return operation

    # -- commands and their answers ---------------------------------------------------------------

    def _tell_state(self, operation: Operation, pair: QueuePair) -> Operation:
        command = layout.QP_MODIFY.pack(
            op=CommandCode.QP_MODIFY,
            pd_key=pair.domain.key,
            key=pair.key,
            state=int(pair.state),
            access=pair.access | layout.ACCESS_TOLD,
            peer_key=pair.peer_key,
        )
        return self._commands.post(command, operation)

    def _delete_twin(self, operation: PairOperation) -> Operation:
        """Delete a twin: nothing is stored any more into its rings, which the peer frees."""
        pair = operation.pair
        pair.state, pair.rings = QueueState.RESET, None
        pair.epoch += 1
        op = CommandCode.QP_DELETE
        command = layout.QP_DELETE.pack(op=op, pd_key=pair.domain.key, key=pair.key)
        return self._commands.post(command, operation)

    def _create_twin(self, operation: Twin) -> Twin:
        pair = operation.pair
        pair.twin_is_new()
        operation.epoch = pair.epoch
        command = layout.QP_CREATE.pack(
            op=CommandCode.QP_CREATE,
            pd_key=pair.domain.key,
            key=pair.key,
            recv_capacity=pair.receives.capacity,
            recv_pieces=pair.sizes.recv_pieces,
            send_capacity=pair.sends.capacity,
            send_pieces=pair.sizes.send_pieces,
            send_completions=pair.sends.completions.address,
            send_consumed=pair.sends.consumed_word.address,
            completion_bell=pair.send_cq.bell,
        )
        return self._commands.post(command, operation)

    def ended(self, operation: Operation, response: bytes | None) -> bool:
        """Go on after an answer, or undo what was refused; False if it waits for another answer."""
        match operation:
            case LocalWork():
                self._work_ended(operation)
            case CreateDomain() if operation.refused:
                self.domains.pop(operation.domain.key, None)
            case Register() if operation.refused:
                self.deregister(operation.domain, operation.region.key)
            case ResetPair() if not operation.deleted:
                operation.deleted, operation.lenient, operation.left = True, False, 1
                operation.pair.clear()
                self._create_twin(operation)
                return False
            case CreateTwin():
                self._twin_made(operation, response)
            case StopPair():
                pair = operation.pair
                if pair.epoch == operation.epoch and pair.state is QueueState.ERROR:
                    pair.flush()
            case RemovePair():
                operation.pair.clear()
                operation.pair.close()
        return True

    def _twin_made(self, operation: CreateTwin, response: bytes | None) -> None:
        pair = operation.pair
        if operation.refused:
            if isinstance(operation, CreatePair):
                self.remove(pair)
        elif response is not None and pair.epoch == operation.epoch:
            pair.twin_is_made(response, self._peer)
            self._schedule.make_runnable(pair.key)

    # -- the peer comes and goes ------------------------------------------------------------------

    def enabled(self) -> None:
        """Make twins of everything at a peer that has none."""
        for domain in self.domains.values():
            self._commands.post(_command(CommandCode.PD_CREATE, domain), Operation())
            for region in domain.regions.values():
                self._commands.post_region(domain, region, Operation())
        for pair in self.pairs.values():
            if pair.state is not QueueState.ERROR:
                self._create_twin(CreateTwin(pair))
                if pair.state is not QueueState.RESET:
                    self.modify(pair)

    def quiescing(self) -> None:
        """Send nothing more; what is posted ends when nothing is under way any more."""
        for pair in self.pairs.values():
            pair.rings = None
            if pair.state in RECEIVING:
                pair.state = QueueState.ERROR
                self._actions.append(Happened(Event.PAIR_FAILED, pair.key))

    def disabled(self) -> None:
        """Flush what is posted: the peer is gone and nothing is under way."""
        for pair in tuple(self.pairs.values()):
            if pair.state is QueueState.ERROR and not pair.flushed:
                pair.flush()


def _command(code: CommandCode, domain: Domain) -> bytearray:
    return layout.PD.pack(op=code, pd_key=domain.key)
