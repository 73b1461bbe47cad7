"""A loopback queue pair as its peer sees it: taking messages, granting writes and reads."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bluebridge.guest.verbs import (
    AccessFlags,
    QpInit,
    QpState,
    RecvWr,
    VerbsError,
    Wc,
    WcFlags,
    WcOpcode,
    WcStatus,
)
from tests.models.verbs.loopback.completions import LoopbackCq
from tests.models.verbs.loopback.network import Message, Network, Pieces
from tests.models.verbs.loopback.receives import LoopbackSrq, ReceiveQueue
from tests.models.verbs.loopback.regions import Refused, Regions, scatter

_OK, _FLUSH = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR


class RespondingQp(ABC):
    """The receives of queue pair `qpn` in domain `pdn`; refusals put it into the error state."""

    def __init__(
        self, network: Network, qpn: int, pdn: int, init: QpInit, regions: Regions
    ) -> None:
        if not isinstance(init.recv_cq, LoopbackCq):
            raise VerbsError("the completion queue is not one of this device")
        if init.srq is not None and not isinstance(init.srq, LoopbackSrq):
            raise VerbsError("the shared receive queue is not one of this device")
        self.qpn = qpn
        self.state = QpState.RESET
        self._network = network
        self._pdn, self._regions = pdn, regions
        self._recv_cq, self._srq = init.recv_cq, init.srq
        full = f"the receive queue of {init.max_recv_wr} entries is full"
        own = ReceiveQueue(init.max_recv_wr, init.max_recv_sge, full)
        self._receives = own if self._srq is None else self._srq.queue
        self._access = AccessFlags(0)
        self._peer_key = b"", 0
        """Device address and number of the peer."""
        self._waiting: set[int] = set()
        """Peers that wait for a receive here."""

    @abstractmethod
    def _enter_error(self) -> None:
        """Go to ERR and flush everything."""

    def accepts(self, device: bytes, qpn: int) -> bool:
        """Whether it is connected to that queue pair, and able to receive."""
        ready = self.state in (QpState.RTR, QpState.RTS)
        return ready and self._peer_key == (device, qpn)

    def may_take_message(self) -> bool:
        """Whether there is a receive."""
        return bool(self._receives.requests)

    def when_receiving(self, qpn: int) -> None:
        """Resume the peer's queue pair when there is a receive."""
        self._waiting.add(qpn)
        if self._srq is not None:
            self._srq.waiting.append(self._resume_peers)

    def _resume_peers(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for qpn in waiting:
            peer = self._network.pairs.get((self._peer_key[0], qpn))
            if peer is not None:
                peer.resume()

    def take_message(self, message: Message) -> WcStatus:
        """Put a message where the next receive wants it."""
        wr = self._receives.requests.popleft()
        try:
            target = self._regions.gather(self._pdn, wr.sg_list, AccessFlags.LOCAL_WRITE)
        except Refused:
            return self._bad_receive(wr, WcStatus.LOC_PROT_ERR, WcStatus.REM_OP_ERR)
        if len(message.data) > sum(map(len, target)):
            return self._bad_receive(wr, WcStatus.LOC_LEN_ERR, WcStatus.REM_INV_REQ_ERR)
        if message.invalidate is not None:
            try:
                self._regions.invalidate(self._pdn, message.invalidate)
            except Refused:
                return self._bad_receive(wr, WcStatus.MW_BIND_ERR, WcStatus.REM_OP_ERR)
        scatter(target, message.data)
        wrote = message.written is not None
        wc = Wc(wr.wr_id, _OK, WcOpcode.RECV_RDMA_WITH_IMM if wrote else WcOpcode.RECV, self.qpn)
        wc.byte_len = len(message.data) if message.written is None else message.written
        if message.imm is not None:
            wc.imm, wc.flags = message.imm, WcFlags.WITH_IMM
        elif message.invalidate is not None:
            wc.imm, wc.flags = message.invalidate, WcFlags.WITH_INV
        self._recv_cq.add(wc, self._receives.retire, solicited=message.solicited)
        return _OK

    def _bad_receive(self, wr: RecvWr, own: WcStatus, peers: WcStatus) -> WcStatus:
        """A receive that cannot take its message: what this side is told, and the peer."""
        self._flush(wr, own)
        return self._refuse(peers)

    def take_write(self, address: int, rkey: int, data: bytes) -> WcStatus:
        """Write into a region."""
        right = AccessFlags.REMOTE_WRITE
        if not self._access & right:
            return self._refuse(WcStatus.REM_INV_REQ_ERR)
        try:
            if data:
                scatter(self._regions.find(rkey, self._pdn, address, len(data), right), data)
        except Refused:
            return self._refuse(WcStatus.REM_ACCESS_ERR)
        return _OK

    def give_read(self, address: int, rkey: int, target: Pieces) -> WcStatus:
        """Read from a region into the peer's memory."""
        right = AccessFlags.REMOTE_READ
        length = sum(map(len, target))
        if not self._access & right:
            return self._refuse(WcStatus.REM_INV_REQ_ERR)
        try:
            if length:
                found = self._regions.find(rkey, self._pdn, address, length, right)
                scatter(target, b"".join(found))
        except Refused:
            return self._refuse(WcStatus.REM_ACCESS_ERR)
        return _OK

    def _refuse(self, status: WcStatus) -> WcStatus:
        self._enter_error()
        return status

    def _flush_receives(self) -> None:
        if self._srq is None:
            while self._receives.requests:
                self._flush(self._receives.requests.popleft(), _FLUSH)

    def _flush(self, wr: RecvWr, status: WcStatus) -> None:
        wc = Wc(wr.wr_id, status, WcOpcode.RECV, self.qpn)
        self._recv_cq.add(wc, self._receives.retire, solicited=True)
