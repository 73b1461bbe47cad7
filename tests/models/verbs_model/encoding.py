"""Work requests as the hardware reads them, completions as the model writes them."""

from __future__ import annotations

from struct import pack

from bluebridge.device.layout.mlx4.cqe import RecvOpcode
from bluebridge.device.layout.mlx4.wqe import BindFlag, SendOpcode
from bluebridge.device.rdma.memory.region import Rights
from tests.models.rdma_node import Wc, data, inline, remote
from tests.models.verbs_model.values import (
    ATOMICS,
    RETURNING,
    WRITES,
    Bind,
    Completion,
    Invalidate,
    Register,
    Work,
)

PLAIN = (RecvOpcode.SEND,)
"""Receives whose immediate says nothing."""
_BIND = (
    (Rights.REMOTE_READ, BindFlag.REMOTE_READ),
    (Rights.REMOTE_WRITE, BindFlag.REMOTE_WRITE),
    (Rights.REMOTE_ATOMIC, BindFlag.REMOTE_ATOMIC),
)
_FAST_REGISTER_SHIFT = 17


def segments_of(work: Work, page_list: int) -> bytes:
    """The segments behind the control segment; a registration's pages are at `page_list`."""
    raw = _action(work, page_list) if work.action else b""
    if work.opcode in WRITES or work.opcode in RETURNING:
        raw += remote(work.remote, work.rkey)
    if work.opcode in ATOMICS:
        raw += _operands(work)
    return raw + (data(*work.sges) if work.inline is None else inline(work.inline))


def _action(work: Work, page_list: int) -> bytes:
    action = work.action
    if isinstance(action, Register):
        flags = action.rights << _FAST_REGISTER_SHIFT & 0xFFFFFFFF
        return pack(">IIQQQII", flags, action.key, page_list, action.start, action.length, 0, 12)
    if isinstance(action, Bind):
        access = sum(int(flag) for right, flag in _BIND if action.rights & right)
        kind = BindFlag.TYPE_2 * action.second_type | BindFlag.ZERO_BASED * action.zero_based
        return pack(">IIIIQQ", access, kind, action.key, action.lkey, action.va, action.length)
    assert isinstance(action, Invalidate)
    return pack(">8xI20x", action.key)


def _operands(work: Work) -> bytes:
    first, compare, mask, compare_mask = work.operands
    if work.opcode is SendOpcode.MASKED_ATOMIC_CS:
        return pack(">QQQQ", first, compare, mask, compare_mask)
    if work.opcode is SendOpcode.MASKED_ATOMIC_FA:
        return pack(">QQ", first, mask)
    return pack(">QQ", first, compare)


def plain(wc: Wc) -> Completion:
    """A completion without what says nothing."""
    if wc.status:
        return Completion(wc.send, wc.index, wc.status)
    if wc.send:
        return Completion(True, wc.index, 0, wc.opcode, wc.length)
    immediate = 0 if wc.opcode in PLAIN else wc.immediate
    return Completion(False, wc.index, 0, wc.opcode, wc.length, immediate, wc.remote_qpn)
