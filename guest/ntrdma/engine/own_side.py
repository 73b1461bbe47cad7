"""The own side of an engine: what users have and ask for, and the peer's answers to that."""

from __future__ import annotations

from collections import deque

from bluebridge.device.layout.net.roce import ipv4_number
from bluebridge.device.layout.ntrdma.commands import (
    CM_MESSAGE,
    CONNECTIONS,
    EXTENSIONS,
    EXTENSIONS_TAG,
    IPV6,
    NONE,
    RESOLVE,
    RESPONSE,
    CommandCode,
)
from bluebridge.guest.ntrdma.engine.completions import CompletionQueue, Schedule
from bluebridge.guest.ntrdma.engine.memory import Bells, Words
from bluebridge.guest.ntrdma.engine.own_commands import (
    AskExtensions,
    CreatePair,
    OwnCommands,
    Resolve,
    succeeded,
)
from bluebridge.guest.ntrdma.engine.own_resources import OwnResources
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.queue_pair import QueuePair, Sizes
from bluebridge.guest.ntrdma.engine.regions import Domain
from bluebridge.guest.ntrdma.engine.transport import Actions, Ended, Operation
from bluebridge.guest.verbs.values import RecvWr, SendWr


class OwnSide:
    """Domains, regions and queue pairs in `resources`, completion queues in `queues`."""

    def __init__(self, words: Words, bells: Bells, peer: Peer, actions: Actions) -> None:
        self._words, self._bells, self._peer, self._actions = words, bells, peer, actions
        self.schedule = Schedule()
        self.commands = OwnCommands(words, peer)
        self.resources = OwnResources(peer, self.commands, self.schedule, actions)
        self._held: deque[tuple[bytearray, Operation]] = deque()
        """The commands of extensions that wait until the peer has said what it knows."""
        self.queues: dict[int, CompletionQueue] = {}
        """The completion queues by their bells."""

    @property
    def deadline(self) -> float:
        """The time at which there is something to do; one in the past means at once."""
        if self.commands.unsent:
            return 0.0
        return min(self.commands.deadline, self.schedule.deadline)

    @property
    def idle(self) -> bool:
        """True if nothing rang, all is settled, and no queue pair has its turn or waits for it."""
        schedule = self.schedule
        busy = schedule.runnable or schedule.failed or schedule.stalled or self.commands.unsent
        return not (busy or self._actions or self._bells.rung)

    # -- what users do ----------------------------------------------------------------------------

    def create_queue(self) -> CompletionQueue:
        """Make a completion queue; its number is its bell. Raises `MemoryError`."""
        bell = self._bells.observe()
        queue = self.queues[bell] = CompletionQueue(bell, self._actions)
        return queue

    def destroy_queue(self, queue: CompletionQueue) -> None:
        """Free a completion queue whose queue pairs are gone."""
        if self.queues.pop(queue.bell, None) is not None:
            self._bells.forget(queue.bell)

    def create_pair(
        self, domain: Domain, sizes: Sizes, queues: tuple[CompletionQueue, CompletionQueue]
    ) -> CreatePair:
        """Make a queue pair with queues for send and receive completions; `MemoryError`."""
        transport, number = self._peer.transport, self.resources.new_number()
        parts = transport, self._words, number, domain, sizes, queues, self.schedule
        return self.resources.add(QueuePair(*parts))

    def post_send(self, pair: QueuePair, request: SendWr) -> None:
        """Take a request; it leaves with the engine's next `run`. Raises `VerbsError`."""
        pair.sends.post(request, pair.sizes.signal_all)
        if pair.flushed:
            pair.sends.flush()
        else:
            self.schedule.make_runnable(pair.key)

    def post_receive(self, pair: QueuePair, request: RecvWr) -> None:
        """Take a receive. Raises `VerbsError`."""
        pair.receives.post(request)
        if pair.flushed:
            pair.receives.flush()

    def push_receives(self, pair: QueuePair) -> None:
        """Let posted receives reach the peer."""
        pair.push_receives(self._peer)

    # -- extensions of version 0.1 -----------------------------------------------------------------

    def knows(self, extension: int = CONNECTIONS) -> bool | None:
        """Whether the peer has an extension, by default connections; None until it has said so."""
        known = self._peer.extensions
        return None if known is None else bool(known & extension)

    def send_cm(self, mad: bytes, sender: bytes) -> bool:
        """Send a CM message of the own GID `sender`; returns False if there is no peer for it."""
        ip = ipv4_number(sender)
        takes = self.knows(CONNECTIONS if ip else IPV6)
        if not self._peer.ready or takes is False:
            return False
        command = CM_MESSAGE.pack(op=CommandCode.CM_MESSAGE, pd_key=ip, mad=mad)
        self._ask(command, Operation(lenient=True))
        return True

    def resolve(self, gid: bytes, asker: bytes) -> Operation:
        """Ask the peer whether the address of a GID is its own; it refuses if not.

        `asker` is the own address that asks.
        """
        operation = Resolve()
        if not self._peer.ready:
            operation.good = False
        elif ip := ipv4_number(gid):
            self._ask(RESOLVE.pack(op=CommandCode.RESOLVE, ip=ip), operation)
        else:
            form = RESOLVE.pack(op=CommandCode.RESOLVE, address=gid, asker=asker)
            self._ask(form, operation)
        return operation

    def _ask(self, command: bytearray, operation: Operation) -> None:
        if self.knows() is None:
            self._held.append((command, operation))
        elif self.knows():
            self.commands.post(command, operation)
        else:
            self.commands.unsent.append(operation)

    def _take_extensions(self, response: bytes | None) -> None:
        """Learn what the peer knows beyond version 0.1, which sends the command back."""
        if response is not None:
            tagged = RESPONSE.get(response, "tag") == EXTENSIONS_TAG
            self._peer.extensions = RESPONSE.get(response, "extensions") if tagged else 0
        held, self._held = self._held, deque()
        for command, operation in held:
            if self.knows() is None:
                self.commands.unsent.append(operation)
            else:
                self._ask(command, operation)

    # -- the peer's answers -----------------------------------------------------------------------

    def take_responses(self) -> bool:
        """Go on with what the peer has answered; returns False for an impossible index."""
        answers = self.commands.take_responses()
        for operation, response in answers or ():
            self._answered(operation, response)
        return answers is not None

    def settle(self) -> None:
        """End what waits for no answer, and bring failed queue pairs to the error state."""
        while self.commands.unsent or self.schedule.failed:
            if self.commands.unsent:
                self._answered(self.commands.unsent.popleft(), None)
            else:
                pair = self.resources.pairs.get(self.schedule.failed.popleft())
                if pair is not None:
                    self.resources.fail(pair)

    def _answered(self, operation: Operation, response: bytes | None) -> None:
        """Take an answer of the peer, None for one that does not come, to an operation."""
        operation.left -= 1
        if not operation.lenient and not succeeded(response):
            operation.refused = True
        if operation.left:
            return
        if isinstance(operation, AskExtensions):
            self._take_extensions(response)
        elif isinstance(operation, Resolve) and response is None:
            operation.refused = True
        if self.resources.ended(operation, response):
            operation.good = not operation.refused
            self._actions.append(Ended(operation))

    # -- the peer comes and goes ------------------------------------------------------------------

    def enabled(self) -> None:
        """Ask the peer for its extensions, and make twins of everything there."""
        known = NONE.pack(op=CommandCode.NONE, tag=EXTENSIONS_TAG, extensions=EXTENSIONS)
        self.commands.post(known, AskExtensions(lenient=True))
        self.resources.enabled()

    def quiescing(self) -> None:
        """Send nothing more; what is posted ends when nothing is under way any more."""
        self.commands.draining = True
        self.resources.quiescing()

    def disabled(self) -> None:
        """End what waits for the peer, which is gone; nothing is under way."""
        self.commands.draining = False
        for operation, response in self.commands.fail():
            self._answered(operation, response)
        self.settle()
        self.resources.disabled()
