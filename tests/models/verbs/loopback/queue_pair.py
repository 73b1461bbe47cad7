"""A reliable connected queue pair whose requests are executed by the thread that posts them."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence

from bluebridge.guest.verbs import (
    AccessFlags,
    QpAttr,
    QpInit,
    QpState,
    QpType,
    RecvWr,
    SendFlags,
    SendWr,
    VerbsError,
    Wc,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from bluebridge.guest.verbs.transitions import StateChanges, check_step
from tests.models.verbs.loopback.completions import LoopbackCq
from tests.models.verbs.loopback.network import LoopbackAddress, Message, Network, Pieces, Responder
from tests.models.verbs.loopback.regions import Refused, Regions
from tests.models.verbs.loopback.responder import RespondingQp

ENDLESS_RETRIES = 7
_OK, _FLUSH = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
_COMPLETIONS = {
    WrOpcode.SEND: WcOpcode.SEND,
    WrOpcode.SEND_WITH_IMM: WcOpcode.SEND,
    WrOpcode.SEND_WITH_INV: WcOpcode.SEND,
    WrOpcode.RDMA_WRITE: WcOpcode.RDMA_WRITE,
    WrOpcode.RDMA_WRITE_WITH_IMM: WcOpcode.RDMA_WRITE,
    WrOpcode.RDMA_READ: WcOpcode.RDMA_READ,
    WrOpcode.REG_MR: WcOpcode.REG_MR,
    WrOpcode.LOCAL_INV: WcOpcode.LOCAL_INV,
    WrOpcode.NOP: WcOpcode.NOP,
}


class LoopbackQp(StateChanges, RespondingQp):
    """A queue pair of the device at `device`, in protection domain `pdn`."""

    type = QpType.RC

    def __init__(
        self, network: Network, device: bytes, qpn: int, pdn: int, init: QpInit, regions: Regions
    ) -> None:
        if not isinstance(init.send_cq, LoopbackCq):
            raise VerbsError("the completion queue is not one of this device")
        super().__init__(network, qpn, pdn, init, regions)
        self._lock, self._device = network.lock, device
        self._init, self._send_cq = init, init.send_cq
        self._rnr_retry = ENDLESS_RETRIES
        self._pending: deque[tuple[int, SendWr]] = deque()
        self._posted = self._retired = 0
        network.pairs[device, qpn] = self

    # -- states ---------------------------------------------------------------------------------

    def modify(self, attr: QpAttr) -> None:
        """Change state and attributes; raises `VerbsError`."""
        with self._lock:
            target = self.state if attr.state is None else attr.state
            check_step(self.state, target)
            if target is QpState.RTR:
                self._connect(attr)
            if attr.access is not None:
                self._access = AccessFlags(attr.access)
            if attr.rnr_retry is not None:
                self._rnr_retry = attr.rnr_retry
            if target is QpState.RESET:
                self._clear()
            elif target is QpState.ERR:
                self._enter_error()
            self.state = target
            self.resume()

    def _connect(self, attr: QpAttr) -> None:
        to = attr.address_vector
        if not isinstance(to, LoopbackAddress) or attr.dest_qpn is None:
            raise VerbsError("RTR needs an address vector, path_mtu (256 … 4096) and dest_qpn")
        self._peer_key = to.device, attr.dest_qpn

    def _clear(self) -> None:
        self._pending.clear()
        self._posted = self._retired = 0
        if self._srq is None:
            self._receives.clear()
        for cq in (self._send_cq, self._recv_cq):
            cq.discard(self.qpn)

    def query_state(self) -> QpState:
        """The state now."""
        with self._lock:
            return self.state

    def destroy(self) -> None:
        """Reset and leave the network; a second call does nothing."""
        with self._lock:
            if self._network.pairs.get((self._device, self.qpn)) is self:
                self.modify_reset()
                del self._network.pairs[self._device, self.qpn]

    # -- posting --------------------------------------------------------------------------------

    def post_send(self, wrs: SendWr | Sequence[SendWr]) -> None:
        """Post and execute one request or a chain."""
        with self._lock:
            try:
                for wr in (wrs,) if isinstance(wrs, SendWr) else wrs:
                    self._post(wr)
            finally:
                self.resume()

    def _post(self, wr: SendWr) -> None:
        if self._posted - self._retired >= self._init.max_send_wr:
            raise VerbsError(f"the send queue of {self._init.max_send_wr} entries is full")
        if wr.opcode not in _COMPLETIONS:
            raise VerbsError(f"{wr.opcode!r} is not possible on RC queue pairs")
        request = copy.copy(wr)  # users change theirs as soon as it is posted
        if wr.inline_data is not None:
            if len(wr.inline_data) > self._init.max_inline:
                size = len(wr.inline_data)
                raise VerbsError(f"{size} inline bytes do not fit into a send entry")
            request.inline_data = bytes(wr.inline_data)
        elif len(wr.sg_list) > self._init.max_send_sge:
            raise VerbsError(f"{len(wr.sg_list)} pieces do not fit into a send entry")
        self._pending.append((self._posted, request))
        self._posted += 1

    def post_recv(self, wrs: RecvWr | Sequence[RecvWr]) -> None:
        """Post receives; a peer that waited for one goes on at once."""
        with self._lock:
            if self._srq is not None:
                raise VerbsError("this queue pair has no receive queue of its own")
            try:
                self._receives.post(wrs)
            finally:
                if self.state is QpState.ERR:
                    self._flush_receives()
                self._resume_peers()

    # -- as requester ---------------------------------------------------------------------------

    def resume(self) -> None:
        """Execute what is pending until a request has to wait."""
        while self._pending and self.state is QpState.RTS:
            index, wr = self._pending[0]
            status = self._execute(wr)
            if status is None:
                return
            self._pending.popleft()
            self._complete(index, wr, status)
            if status is not _OK:
                self._enter_error()
        if self.state is QpState.ERR:
            self._flush_sends()

    def _execute(self, wr: SendWr) -> WcStatus | None:
        try:
            if wr.opcode in (WrOpcode.REG_MR, WrOpcode.LOCAL_INV, WrOpcode.NOP):
                return self._local(wr)
            peer = self._network.pairs.get(self._peer_key)
            if wr.opcode is WrOpcode.RDMA_READ:
                target = self._regions.gather(self._pdn, wr.sg_list, AccessFlags.LOCAL_WRITE)
                action = self._read(wr, target)
            else:
                action = self._send_or_write(wr, self._payload(wr))
        except Refused:
            return WcStatus.LOC_PROT_ERR
        if peer is None or not peer.accepts(self._device, self.qpn):
            return WcStatus.RETRY_EXC_ERR
        return action(peer)

    def _local(self, wr: SendWr) -> WcStatus:
        try:
            if wr.opcode is WrOpcode.REG_MR:
                self._regions.fast_register(self._pdn, wr)
            elif wr.opcode is WrOpcode.LOCAL_INV:
                self._regions.invalidate(self._pdn, wr.invalidate_rkey)
        except Refused:
            return WcStatus.MW_BIND_ERR
        return _OK

    def _payload(self, wr: SendWr) -> bytes:
        if wr.inline_data is not None:
            return bytes(wr.inline_data)
        return b"".join(self._regions.gather(self._pdn, wr.sg_list, AccessFlags(0)))

    def _read(self, wr: SendWr, target: Pieces) -> Callable[[Responder], WcStatus | None]:
        return lambda peer: peer.give_read(wr.remote_addr, wr.rkey, target)

    def _send_or_write(self, wr: SendWr, data: bytes) -> Callable[[Responder], WcStatus | None]:
        writes = wr.opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM)
        has_imm = wr.opcode in (WrOpcode.SEND_WITH_IMM, WrOpcode.RDMA_WRITE_WITH_IMM)
        message = Message(
            b"" if writes else data,
            imm=wr.imm if has_imm else None,
            invalidate=wr.invalidate_rkey if wr.opcode is WrOpcode.SEND_WITH_INV else None,
            solicited=bool(wr.send_flags & SendFlags.SOLICITED),
            written=len(data) if writes else None,
        )

        def act(peer: Responder) -> WcStatus | None:
            takes_receive = wr.opcode is not WrOpcode.RDMA_WRITE
            if takes_receive and not peer.may_take_message():
                return self._wait_for_receive(peer)
            status = peer.take_write(wr.remote_addr, wr.rkey, data) if writes else _OK
            return peer.take_message(message) if takes_receive and status is _OK else status

        return act

    def _wait_for_receive(self, peer: Responder) -> WcStatus | None:
        if self._rnr_retry != ENDLESS_RETRIES:
            return WcStatus.RNR_RETRY_EXC_ERR
        peer.when_receiving(self.qpn)
        return None

    def _complete(self, index: int, wr: SendWr, status: WcStatus) -> None:
        signaled = wr.send_flags & SendFlags.SIGNALED or self._init.signal_all
        if status is _OK and not signaled:
            return
        opcode = _COMPLETIONS[wr.opcode] if status is _OK else WcOpcode.SEND
        length = sum(piece[1] for piece in wr.sg_list) if opcode is WcOpcode.RDMA_READ else 0
        wc = Wc(wr.wr_id, status, opcode, self.qpn, length)

        def retire() -> None:
            self._retired = index + 1

        self._send_cq.add(wc, retire, solicited=status is not _OK)

    # -- the error state ------------------------------------------------------------------------

    def _enter_error(self) -> None:
        self.state = QpState.ERR
        self._flush_sends()
        self._flush_receives()

    def _flush_sends(self) -> None:
        while self._pending:
            index, wr = self._pending.popleft()
            self._complete(index, wr, _FLUSH)
