"""Send queue entries that stay inside the adapter: registration, windows, invalidation, NOP."""

from __future__ import annotations

from struct import unpack
from typing import Final

from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.mlx4.memory.protection_entry import rights_of_fast_register
from bluebridge.device.mlx4.pairs.queue_pair import QueuePair
from bluebridge.device.mlx4.rings.work_requests import (
    BIND,
    BIND_MW,
    FAST_REG,
    LOCAL_INVAL,
    NOP,
    SendWqe,
    binding_of,
)
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.memory.region import pages_of
from bluebridge.device.rdma.memory.regions import PAGE_SHIFTS
from bluebridge.device.rdma.memory.rights import AccessError
from bluebridge.device.rdma.memory.windows import bind

MAX_PAGES: Final = 511
PAGE_MASK: Final = ~7
_KEY_OFFSET: Final = 8


def execute(qp: QueuePair, wqe: SendWqe) -> CompletionStatus | None:
    """Carry out a local entry; the status of its failure, or None."""
    try:
        if wqe.opcode == NOP:
            return None
        if wqe.opcode == LOCAL_INVAL:
            return _invalidate(qp, wqe)
        if wqe.opcode == BIND_MW:
            return _bind(qp, wqe)
        return _register(qp, wqe)
    except (AccessError, DmaError) as error:
        qp.bus.note(Kind.NOTE, f"QP {qp.qpn:#x} WQE {wqe.index}: {error}", obj=qp.qpn)
        return CompletionStatus.MW_BIND_ERR


def _invalidate(qp: QueuePair, wqe: SendWqe) -> CompletionStatus | None:
    if len(wqe.segment) < _KEY_OFFSET + 4:
        return CompletionStatus.LOCAL_QP_OP_ERR
    key = int.from_bytes(wqe.segment[_KEY_OFFSET : _KEY_OFFSET + 4], "big")
    qp.regions.invalidate(key, qp.pd, qpn=qp.qpn)
    return None


def _bind(qp: QueuePair, wqe: SendWqe) -> CompletionStatus | None:
    if len(wqe.segment) < BIND.size:
        return CompletionStatus.LOCAL_QP_OP_ERR
    bind(qp.regions, binding_of(wqe.segment), pd=qp.pd, qpn=qp.qpn)
    return None


def _register(qp: QueuePair, wqe: SendWqe) -> CompletionStatus | None:
    """REG_MR: the page list is read and copied now, software may reuse it afterwards."""
    if len(wqe.segment) < FAST_REG.size or not qp.fast_register:
        return CompletionStatus.LOCAL_QP_OP_ERR
    flags, key, page_list, start, length, offset, shift = FAST_REG.unpack_from(wqe.segment)
    if shift not in PAGE_SHIFTS or offset or not length or start + length > 1 << 64:
        return CompletionStatus.MW_BIND_ERR
    count = pages_of(start, length, shift)
    if count > MAX_PAGES:
        return CompletionStatus.MW_BIND_ERR
    raw = qp.bus.read(page_list, count * 8, What.PAGE_LIST, qp.qpn)
    pages = [entry & PAGE_MASK for entry in unpack(f">{count}Q", raw)]
    rights = rights_of_fast_register(flags)
    qp.regions.fast_register(key, qp.pd, start, length, shift, rights, pages)
    return None
