"""The responder: serves the peer's sends by completing receives and carrying out reads."""

from __future__ import annotations

from collections import deque

from bluebridge.device.layout.ntrdma.work import WorkCode, WorkStatus
from bluebridge.guest.ntrdma.engine.memory import IMMEDIATE, SOLICITED, SendEntry, network_order
from bluebridge.guest.ntrdma.engine.own_commands import CommandExecution
from bluebridge.guest.ntrdma.engine.own_resources import OwnResources
from bluebridge.guest.ntrdma.engine.peer import Peer
from bluebridge.guest.ntrdma.engine.queue_pair import QueuePair
from bluebridge.guest.ntrdma.engine.regions import Refused, copies, find, gather, total
from bluebridge.guest.ntrdma.engine.remote import RemoteResources
from bluebridge.guest.ntrdma.engine.remote_pair import CorruptRing, RemotePair
from bluebridge.guest.ntrdma.engine.requester import BATCH
from bluebridge.guest.verbs.enums import AccessFlags

_READ, _LOCAL = int(AccessFlags.REMOTE_READ), int(AccessFlags.LOCAL_WRITE)
_RECEIVES = (
    WorkCode.SEND,
    WorkCode.SEND_INVALIDATE,
    WorkCode.SEND_IMMEDIATE,
    WorkCode.WRITE_IMMEDIATE,
)
_USED_A_RECEIVE = (WorkStatus.RECV_OVERFLOW, WorkStatus.RECV_PROTECTION, WorkStatus.INVALIDATION)
"""The statuses by which a requester finds out that its request has taken a receive."""
_KNOWN = frozenset(int(status) for status in WorkStatus)
_CODES = {int(code): code for code in WorkCode if code >= WorkCode.SEND}
"""The opcodes that an entry of a send ring may have."""


class PeerSide:
    """The twins of the peer's resources in `remote`, and those of its queue pairs that rang."""

    def __init__(
        self, execution: CommandExecution, remote: RemoteResources, peer: Peer, own: OwnResources
    ) -> None:
        self.execution, self.remote = execution, remote
        self._peer, self._transport, self._own = peer, peer.transport, own
        self.rung: deque[RemotePair] = deque()
        self.broken = ""
        """The reason to disconnect from the peer, if there is one."""

    def execute(self) -> None:
        """Carry out the commands that came."""
        commands = self.execution.take()
        if commands is None:
            self.broken = "the peer's command index cannot be"
        elif commands:
            self.execution.answer([self.remote.execute(command) for command in commands])

    def rang(self, twin: RemotePair) -> None:
        """Note that the peer has sent to a twin."""
        if twin not in self.rung:
            self.rung.append(twin)

    def serve(self) -> bool:
        """Serve a batch of each twin that rang; returns True if more is left."""
        for _ in range(len(self.rung)):
            twin = self.rung.popleft()
            produced = twin.send_produced.get()
            self.execute()  # those that were stored before these sends
            if self.remote.pairs.get(twin.key) is twin and self._serve_twin(twin, produced):
                self.rung.append(twin)
        return bool(self.rung)

    def clear(self) -> None:
        """Forget everything of a peer that begins anew."""
        self.remote.clear()
        self.rung.clear()
        self.execution.restart()

    def _serve_twin(self, twin: RemotePair, produced: int) -> bool:
        """Serve a batch of the sends up to index `produced`; returns True if more is left."""
        pair = self._own.pairs.get(twin.peer_key)
        try:
            left = twin.arrived(produced)
        except CorruptRing:
            left = 0
            if pair is not None and pair.peer_key == twin.key:
                self._own.fail(pair)
        for _ in range(min(left, BATCH)):
            self._serve_one(twin, pair)
        twin.push_answers(self._peer)
        return left > BATCH

    def _serve_one(self, twin: RemotePair, pair: QueuePair | None) -> None:
        entry = twin.next_send()
        if twin.broken:
            twin.answer(entry, WorkStatus.ABORTED, 0)
            return
        if pair is None or pair.peer_key != twin.key or not pair.receiving:
            status = WorkStatus.RECV_NOT_READY
        elif entry is None:
            status = WorkStatus.CORRUPT
        else:
            status = self._status(twin, pair, entry)
        length = _length(entry) if entry is not None else 0
        if status is not WorkStatus.OK:
            twin.broken = True
        twin.answer(entry, status, length)
        if status is not WorkStatus.OK and pair is not None and pair.peer_key == twin.key:
            self._own.fail(pair)

    def _status(self, twin: RemotePair, pair: QueuePair, entry: SendEntry) -> WorkStatus:
        code = _CODES.get(entry.op)
        if code is None:
            return WorkStatus.OPCODE
        if entry.status != WorkStatus.OK:
            return self._failed(pair, code, entry)
        if code is WorkCode.READ:
            return self._read(twin, pair, entry)
        if code in _RECEIVES:
            return self._receive(pair, code, entry)
        return WorkStatus.OK

    def _failed(self, pair: QueuePair, code: WorkCode, entry: SendEntry) -> WorkStatus:
        """Take an error that the requester found, perhaps with a receive of this side."""
        if entry.status not in _KNOWN:
            return WorkStatus.CORRUPT
        status = WorkStatus(entry.status)
        if status in _USED_A_RECEIVE and code in _RECEIVES:
            pair.receives.complete(entry.recv_key, code, status, 0, 0, True)
        return status

    def _receive(self, pair: QueuePair, code: WorkCode, entry: SendEntry) -> WorkStatus:
        ends, key = code is WorkCode.SEND_INVALIDATE, entry.immediate
        if ends and self._own.invalidate(pair.domain, key) is None:
            return WorkStatus.INVALIDATION
        right = pair.receives.complete(
            entry.recv_key,
            code,
            WorkStatus.OK,
            entry.rdma_length,
            _immediate(code, entry),
            bool(entry.handle & SOLICITED),
        )
        return WorkStatus.OK if right else WorkStatus.CORRUPT

    def _read(self, twin: RemotePair, pair: QueuePair, entry: SendEntry) -> WorkStatus:
        if not pair.access & _READ:
            return WorkStatus.QUEUE_ACCESS
        length = total(entry.pieces)
        if not length:
            return WorkStatus.OK
        where = entry.rdma_key, entry.rdma_address, length
        try:
            sources = find(pair.domain.regions, *where, _READ)
        except Refused as refused:
            return refused.status
        try:
            targets = gather(twin.regions, entry.pieces, _LOCAL)
        except Refused:
            return WorkStatus.LOCAL_PROTECTION
        for source, target, length in copies(sources, targets):
            self._transport.copy(source, target, length)
        return WorkStatus.OK


def _length(entry: SendEntry) -> int:
    """Return the bytes that a send moves; those of a READ are in its pieces, as in version 0.1."""
    reads = entry.op == WorkCode.READ
    return total(entry.pieces) & 0xFFFFFFFF if reads else entry.rdma_length


def _immediate(code: WorkCode, entry: SendEntry) -> int:
    if code in IMMEDIATE:
        return network_order(entry.immediate)
    return 0 if code is WorkCode.SEND else entry.immediate
