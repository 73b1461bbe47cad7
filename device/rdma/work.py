"""Work requests as engines see them; a face fills them in from its queue entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from bluebridge.device.frames.sending import LargeSendHeaders, SegmentError
from bluebridge.device.rdma.memory.regions import Binding, Registration
from bluebridge.device.rdma.memory.scatter_gather import Sge
from bluebridge.device.rdma.vocabulary import ATOMIC_SIZE, ATOMICS, READ, CompletionStatus


class WorkError(Exception):
    """A work request makes no sense, or breaks a limit; `status` is for its completion."""

    status: ClassVar[CompletionStatus] = CompletionStatus.LOCAL_QP_OP_ERR


class TooLongError(WorkError):
    """A message is longer than its queue pair may send."""

    status: ClassVar[CompletionStatus] = CompletionStatus.LOCAL_LENGTH_ERR


class SendWork:
    """One send work request, and what the requester remembers of it until it completes.

    `operation` is one of `rdma.vocabulary`. `parts` is the gather list in order: SGEs, and `bytes`
    for inline data; `length` its bytes. `atomic` are the operands in the order of
    `fabric.messages.Request.atomic`, of `atomic_size` bytes each. `immediate` may be the key to
    invalidate at the peer, `rkey` the one to invalidate here. `srqn` is the peer's SRQ, of XRC.
    `whole` is False where a local operation lacks what it says how. `update` carries an UPDATE out;
    it raises `AccessError` or `DmaError`. `status` is 0 or that of a completion in error that waits
    for its turn. It `returns_data` if it is a read or an atomic, whose answer carries them.
    """

    def __init__(self, index: int, operation: int) -> None:
        self.index = index
        self.operation = operation
        self.returns_data = operation == READ or operation in ATOMICS
        self.signalled = False
        self.fence = False
        self.solicited = False
        self.immediate = 0
        self.parts: list[Sge | bytes] = []
        self.length = 0
        self.remote_address = 0
        self.rkey = 0
        self.atomic = (0, 0, 0, 0)
        self.atomic_size = ATOMIC_SIZE
        self.srqn = 0
        self.whole = True
        self.registration: Registration | None = None
        self.binding: Binding | None = None
        self.update: Callable[[], None] | None = None
        self.psn = 0
        self.packets = 1
        self.status = 0


class PacketWork(SendWork):
    """A message whose packets the adapter may complete.

    `checksums` are bits of `frames.sending`. A large send is cut into pieces of `mss`
    bytes behind copies of `header`, which may be that of UDP only where `cuts_udp` says so.
    """

    def __init__(self, index: int, operation: int) -> None:
        super().__init__(index, operation)
        self.checksums = 0
        self.header = b""
        self.mss = 0
        self.cuts_udp = False

    def cut(self, header: bytes, payload: bytes, *, ipoib: bool = False) -> list[bytes]:
        """Return the packets of a large send, each behind a copy of `header`.

        Raises `WorkError` for headers that do not permit to cut it.
        """
        try:
            headers = LargeSendHeaders(header, ipoib=ipoib, udp=self.cuts_udp)
            return headers.cut(payload, self.mss)
        except SegmentError as error:
            raise WorkError(str(error)) from error


class DatagramWork(PacketWork):
    """A datagram to send; `QueuePair.read_path` turns `address` into the path of its destination.

    `address_pd` is the protection domain of that address, None where addresses have none. The own
    Q_Key of the queue pair is sent where `own_qkey` says so, else `qkey`.
    """

    def __init__(self, index: int, operation: int) -> None:
        super().__init__(index, operation)
        self.address = b""
        self.address_pd: int | None = None
        self.own_qkey = False
        self.qkey = 0
        self.target_qpn = 0


class FrameWork(PacketWork):
    """An Ethernet frame to send; a tag of type `tag_type` (0: none) with value `tag` is inserted.

    `loopback` sends it back to the port only. `repeated` is the destination address where the
    entry repeats it, for frames that may come back.
    """

    def __init__(self, index: int, operation: int) -> None:
        super().__init__(index, operation)
        self.loopback = False
        self.repeated = b""
        self.tag = 0
        self.tag_type = 0


class ReceiveWork:
    """A receive request that was taken off its queue; `pd` is the domain of its keys."""

    def __init__(self, index: int, sges: list[Sge], pd: int) -> None:
        self.index = index
        self.sges = sges
        self.pd = pd
