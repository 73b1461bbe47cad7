"""The own queue pairs, and the commands that keep their twins at the peer."""

from __future__ import annotations

from typing import TypeVar

from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma.commands import CommandCode, QueueState
from bluebridge.guest.protocols.ntrdma.engine.completions import Schedule
from bluebridge.guest.protocols.ntrdma.engine.own_commands import (
    CreatePair,
    CreateTwin,
    OwnCommands,
    PairOperation,
    RemovePair,
    ResetPair,
    StopPair,
)
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer
from bluebridge.guest.protocols.ntrdma.engine.queue_pair import RECEIVING, QueuePair, Rings
from bluebridge.guest.protocols.ntrdma.engine.transport import Actions, Event, Happened, Operation

FIRST_PAIR = 0x10
_PAIR_NUMBERS = 1 << 24
Twin = TypeVar("Twin", bound=CreateTwin)


class OwnPairs:
    """The queue pairs of this side, by number.

    All calls return at once, with an operation that ends when the peer has answered.
    """

    def __init__(
        self, peer: Peer, commands: OwnCommands, schedule: Schedule, actions: Actions
    ) -> None:
        self.pairs: dict[int, QueuePair] = {}
        self._peer, self._commands, self._transport = peer, commands, peer.transport
        self._schedule, self._actions = schedule, actions
        self._next_pair = FIRST_PAIR

    def new_number(self) -> int:
        """Return a number for a queue pair that was not used lately."""
        while self._next_pair in self.pairs:
            self._next_pair = max(FIRST_PAIR, (self._next_pair + 1) % _PAIR_NUMBERS)
        number = self._next_pair
        self._next_pair = max(FIRST_PAIR, (number + 1) % _PAIR_NUMBERS)
        return number

    # -- what users do --------------------------------------------------------------------------

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
        """Go on with a queue pair after an answer; False if the operation waits for another."""
        match operation:
            case ResetPair() if not operation.deleted:
                self._twin_deleted(operation)
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

    def _twin_deleted(self, operation: ResetPair) -> None:
        operation.deleted, operation.lenient, operation.left = True, False, 1
        operation.pair.clear()
        self._create_twin(operation)

    def _twin_made(self, operation: CreateTwin, response: bytes | None) -> None:
        pair = operation.pair
        if operation.refused:
            if isinstance(operation, CreatePair):
                self.remove(pair)
        elif response is not None and pair.epoch == operation.epoch:
            pair.rings = self._rings(response, pair)
            pair.push_receives(self._peer)
            self._schedule.make_runnable(pair.key)

    def _rings(self, response: bytes, pair: QueuePair) -> Rings | None:
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
        """Make twins at a peer that has none."""
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
