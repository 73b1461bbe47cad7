"""The base of send engines without a connection, where an entry is done once it is sent."""

from __future__ import annotations

from time import monotonic_ns

from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.memory.region import AbsentError, AccessError
from bluebridge.device.rdma.pairs.engines import SendEngine
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import NOP, CompletionStatus
from bluebridge.device.rdma.work import SendWork, WorkError


class UnconnectedSender(SendEngine):
    """The base of send engines that await no answers; subclasses implement `_send`.

    `_held` is the request that waits for absent pages.
    """

    def __init__(self, qp: QueuePair) -> None:
        super().__init__()  # its PSN is told to software, not used
        self._qp = qp
        self._held: SendWork | None = None

    def execute(self, work: SendWork) -> None:
        """Send one message, or complete its entry in error."""
        left = monotonic_ns() if work.signalled else 0
        try:
            if work.operation != NOP:
                self._send(work)
        except WorkError as error:
            self._fail(work.index, error.status, error)
        except (AccessError, DmaError) as fault:
            if isinstance(fault, AbsentError) and self._qp.paging.for_send(
                work.index, brings=False, done=0
            ):
                self._held = work
                return
            self._fail(work.index, CompletionStatus.LOCAL_PROT_ERR, fault)
        else:
            if work.signalled:
                self._qp.completions.complete_send(work.index, work.operation, work.length, left)

    @property
    def idle(self) -> bool:
        return self._held is None

    def blocked(self) -> bool:
        return self._held is not None

    def resume(self, *, failed: bool) -> None:
        work, self._held = self._held, None
        if work is None:
            return
        if failed:
            self._fail(work.index, CompletionStatus.LOCAL_PROT_ERR, AccessError("pages are absent"))
        else:
            self.execute(work)
        if self._qp.sq is not None:
            self._qp.sq.go_on()

    def abort(self) -> None:
        work, self._held = self._held, None
        self.stop()
        if work is not None:
            self._qp.completions.fail_send(work.index, CompletionStatus.WR_FLUSH_ERR)

    def stop(self) -> None:
        self._held = None

    def refuse(self, index: int, error: WorkError) -> None:
        """Complete an entry that makes no sense in error."""
        self._fail(index, error.status, error)

    def _send(self, work: SendWork) -> None:
        """Send the message of a SEND; raises `WorkError`, `AccessError` or `DmaError`."""
        raise NotImplementedError

    def _fail(self, index: int, status: CompletionStatus, error: Exception) -> None:
        qp = self._qp
        qp.bus.tell(Fact.WORK_REFUSED, qpn=qp.qpn, index=index, reason=str(error))
        qp.completions.fail_send(index, status)
        qp.enter_send_error()
