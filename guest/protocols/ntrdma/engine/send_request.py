"""A posted work request of a send queue, as a record of its own."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.layout.ntrdma.work import WorkCode
from bluebridge.guest.protocols.ntrdma.engine.regions import Segment
from bluebridge.guest.verbs.enums import SendFlags, WcOpcode, WcStatus, WrOpcode
from bluebridge.guest.verbs.errors import VerbsError
from bluebridge.guest.verbs.values import SendWr, Sge

CODES = {
    WrOpcode.SEND: WorkCode.SEND,
    WrOpcode.SEND_WITH_INV: WorkCode.SEND_INVALIDATE,
    WrOpcode.SEND_WITH_IMM: WorkCode.SEND_IMMEDIATE,
    WrOpcode.RDMA_WRITE_WITH_IMM: WorkCode.WRITE_IMMEDIATE,
    WrOpcode.RDMA_WRITE: WorkCode.WRITE,
    WrOpcode.RDMA_READ: WorkCode.READ,
}
"""The opcodes of requests that cross the bridge; all others are carried out by commands."""
LOCAL = {
    WrOpcode.REG_MR: WcOpcode.REG_MR,
    WrOpcode.LOCAL_INV: WcOpcode.LOCAL_INV,
    WrOpcode.NOP: WcOpcode.NOP,
}
_OPCODES = {
    WorkCode.SEND: WcOpcode.SEND,
    WorkCode.SEND_INVALIDATE: WcOpcode.SEND,
    WorkCode.SEND_IMMEDIATE: WcOpcode.SEND,
    WorkCode.WRITE_IMMEDIATE: WcOpcode.RDMA_WRITE,
    WorkCode.WRITE: WcOpcode.RDMA_WRITE,
    WorkCode.READ: WcOpcode.RDMA_READ,
}
_SIGNALED, _SOLICITED = int(SendFlags.SIGNALED), int(SendFlags.SOLICITED)
_FENCE = int(SendFlags.FENCE)


@dataclass(slots=True, eq=False)
class SendRequest:
    """A posted request, copied since users change theirs as soon as it is posted."""

    sequence: int
    wr_id: int
    code: WorkCode | None
    """The opcode of its entry; None for one that is carried out here, which is `local`."""
    flags: int
    pieces: tuple[Sge, ...]
    length: int
    staged: list[Segment] | None
    """The place of inline data."""
    rdma_address: int
    rdma_key: int
    immediate: int
    """The immediate, or the key to invalidate of a SEND_WITH_INV."""
    local: SendWr | None = None
    ending: WcStatus | None = None
    """The way it has ended, while requests before it have not."""

    @property
    def opcode(self) -> WcOpcode:
        """The opcode of its completion."""
        if self.code is not None:
            return _OPCODES[self.code]
        assert self.local is not None
        return LOCAL[self.local.opcode]

    @property
    def signaled(self) -> bool:
        """Return True if it completes also when it succeeds."""
        return self.flags & _SIGNALED != 0

    @property
    def solicited(self) -> bool:
        """Return True if the peer's completion of it is a solicited one."""
        return self.flags & _SOLICITED != 0

    @property
    def fenced(self) -> bool:
        """Return True if it leaves when all reads before it have ended."""
        return self.flags & _FENCE != 0


def send_request(
    wr: SendWr, sequence: int, signal_all: bool, staged: list[Segment] | None
) -> SendRequest:
    """Return the record of a request; `staged` is its inline data's place. Raises `VerbsError`."""
    code = CODES.get(wr.opcode)
    if code is None and wr.opcode not in LOCAL:
        raise VerbsError(f"NTRDMA has no {wr.opcode.name}")
    pieces = () if staged is not None else tuple(wr.sg_list)
    return SendRequest(
        sequence,
        wr.wr_id,
        code,
        int(wr.send_flags) | (_SIGNALED if signal_all else 0),
        pieces,
        staged[0][1] if staged else sum(piece[1] for piece in pieces),
        staged,
        wr.remote_addr,
        wr.rkey,
        wr.invalidate_rkey if code is WorkCode.SEND_INVALIDATE else wr.imm,
        _copied(wr) if code is None else None,
    )


def _copied(wr: SendWr) -> SendWr:
    """Return a copy of a request with the fields that a local request needs."""
    return SendWr(
        wr.wr_id,
        wr.opcode,
        invalidate_rkey=wr.invalidate_rkey,
        mr=wr.mr,
        pages=tuple(wr.pages),
        page_size=wr.page_size,
        key=wr.key,
        access=wr.access,
        iova=wr.iova,
        length=wr.length,
    )
