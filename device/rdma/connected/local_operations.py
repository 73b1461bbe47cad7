"""Send queue entries that stay inside the adapter: registration, windows, invalidation, NOP."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.buslog import Kind
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.memory.region import AccessError, pages_of
from bluebridge.device.rdma.memory.regions import PAGE_SHIFTS, bind
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.vocabulary import BIND, INVALIDATE, NOP, CompletionStatus
from bluebridge.device.rdma.work import SendWork

MAX_PAGES: Final = 511


def execute(qp: QueuePair, work: SendWork) -> CompletionStatus | None:
    """Carry out a local entry; returns the status of its failure, None on success."""
    if work.operation == NOP:
        return None
    if not work.whole:
        return CompletionStatus.LOCAL_QP_OP_ERR
    try:
        if work.operation == INVALIDATE:
            qp.regions.invalidate(work.rkey, qp.pd, qpn=qp.qpn)
            return None
        if work.operation == BIND:
            return _bind(qp, work)
        return _register(qp, work)
    except (AccessError, DmaError) as error:
        qp.bus.note(Kind.NOTE, f"QP {qp.qpn:#x} WQE {work.index}: {error}", obj=qp.qpn)
        return CompletionStatus.MW_BIND_ERR


def _bind(qp: QueuePair, work: SendWork) -> CompletionStatus | None:
    if work.binding is None:
        return CompletionStatus.LOCAL_QP_OP_ERR
    bind(qp.regions, work.binding, pd=qp.pd, qpn=qp.qpn)
    return None


def _register(qp: QueuePair, work: SendWork) -> CompletionStatus | None:
    """Carry out REG_MR; the page list is copied now, since software may reuse it afterwards."""
    wanted = work.registration
    if wanted is None or not qp.fast_register:
        return CompletionStatus.LOCAL_QP_OP_ERR
    start, length, shift = wanted.start, wanted.length, wanted.page_shift
    if shift not in PAGE_SHIFTS or wanted.offset or not length or start + length > 1 << 64:
        return CompletionStatus.MW_BIND_ERR
    count = pages_of(start, length, shift)
    if count > MAX_PAGES:
        return CompletionStatus.MW_BIND_ERR
    pages = qp.read_pages(wanted.page_list, count)
    qp.regions.fast_register(wanted.key, qp.pd, start, length, shift, wanted.rights, pages)
    return None
