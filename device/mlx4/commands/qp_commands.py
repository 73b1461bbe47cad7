"""State transitions of queue pairs (Linux `mlx4/qp.c: __mlx4_qp_modify`, `ib/qp.c`).

Drivers build a context from zeros for each transition and fill in what they mean to change, so
zero never means "set to zero": `_merge_*` take what belongs to the transition, and `OptPar` says
what else.
"""

from __future__ import annotations

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.layout.mlx4.commands import (
    MODIFIER_SQD_EVENT,
    TRANSITIONS,
    Opcode,
    OptPar,
    Status,
)
from bluebridge.device.layout.mlx4.contexts import QPC, QPC_MAILBOX_OFFSET, QPC_SIZE, QpState
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.pairs import HcaPair
from bluebridge.device.mlx4.rings.send_queue import SendRing
from bluebridge.device.mlx4.settings.parameters import CommandError
from bluebridge.device.mlx4.words import STATES
from bluebridge.device.queue_pairs import QPN_MASK
from bluebridge.device.rdma.vocabulary import PairState, Role
from bluebridge.device.rings.receive_ring import ReceiveRing

OPTIONAL: dict[OptPar, str] = {
    OptPar.ALT_PATH: "alt_path",
    OptPar.RRE: "remote_read",
    OptPar.RAE: "remote_atomic",
    OptPar.RWE: "remote_write",
    OptPar.PKEY_INDEX: "pri_pkey_index",
    OptPar.QKEY: "qkey",
    OptPar.RNR_TIMEOUT: "min_rnr_timer",
    OptPar.PRIMARY_PATH: "pri_path",
    OptPar.SRA_MAX: "sra_max",
    OptPar.RRA_MAX: "rra_max",
    OptPar.PM_STATE: "pm_state",
    OptPar.RETRY_COUNT: "retry_count",
    OptPar.RNR_RETRY: "rnr_retry",
    OptPar.ACK_TIMEOUT: "pri_ack_timeout",
    OptPar.SCHED_QUEUE: "pri_sched_queue",
    OptPar.COUNTER_INDEX: "pri_counter_index",
    OptPar.VLAN_STRIPPING: "no_vlan_strip",
}
"""The context field by the bit of the optional parameter mask that announces it."""

LINK_TYPE = {LinkLayer.INFINIBAND: 0, LinkLayer.ETHERNET: 1}


def _merge_rtr(qp: HcaPair, source: bytes) -> None:
    """Take over the path and the responder's fields, for INIT2RTR."""
    QPC.take(qp.context, source, "remote_qpn", "next_recv_psn", "rra_max")
    QPC.take_if_set(qp.context, source, "mtu_msgmax", "roce_mode", "min_rnr_timer")
    if qp.role is Role.RSS:
        # the RSS context lies over the rest of the path
        QPC.take(qp.context, source, "pri_counter_index", "pri_sched_queue")
    elif qp.connected or any(QPC.get_raw(source, "pri_path")):
        timeout = QPC.get(qp.context, "pri_ack_timeout")
        pkey_index = QPC.get(qp.context, "pri_pkey_index")
        QPC.take(qp.context, source, "pri_path")
        QPC.set(qp.context, "pri_pkey_index", pkey_index)  # it changes by the mask only
        if not QPC.get(source, "pri_ack_timeout"):
            QPC.set(qp.context, "pri_ack_timeout", timeout)
    # the mailbox of RTR2RTS names another link type: the port decides, not software
    QPC.set(qp.context, "pri_link_type", LINK_TYPE[qp.port.link])
    qp.responder.psn = QPC.get(source, "next_recv_psn")


def _merge_rts(qp: HcaPair, source: bytes) -> None:
    """Take over the requester's fields, for RTR2RTS."""
    QPC.take(qp.context, source, "next_send_psn")
    QPC.take_if_set(qp.context, source, "pri_ack_timeout", "retry_count", "rnr_retry", "sra_max")
    qp.engine.next_psn = QPC.get(source, "next_send_psn")


def _find(adapter: Adapter, command: Command) -> HcaPair:
    """Return the queue pair that a command names; raises `CommandError` (BAD_QP_STATE) in RST."""
    qpn = command.in_modifier & QPN_MASK
    qp = adapter.pair(qpn)
    if qp is None:
        raise CommandError(Status.BAD_QP_STATE, f"QP {qpn:#x} is in RST")
    return qp


def _mailbox(command: Command) -> tuple[int, bytes]:
    raw = command.mailbox(QPC_MAILBOX_OFFSET + QPC_SIZE)
    return int.from_bytes(raw[:4], "big"), raw[QPC_MAILBOX_OFFSET:]


def create(adapter: Adapter, command: Command) -> None:
    """Make a queue pair from a whole context (RST2INIT_QP)."""
    _, context = _mailbox(command)
    adapter.create_pair(command.in_modifier & QPN_MASK, bytearray(context))


def modify(adapter: Adapter, command: Command) -> None:
    """Carry out a transition between two states in which hardware owns the queue pair."""
    qp = _find(adapter, command)
    sources, target = TRANSITIONS[command.opcode]
    if STATES[qp.state] not in sources:
        raise CommandError(
            Status.BAD_QP_STATE, f"QP {qp.qpn:#x} is in {qp.state.name}, not {sources[0].name}"
        )
    mask, context = _mailbox(command)
    if command.opcode == Opcode.INIT2RTR_QP:
        _merge_rtr(qp, context)
    elif command.opcode == Opcode.RTR2RTS_QP:
        _merge_rts(qp, context)
    for bit, name in OPTIONAL.items():
        if mask >> bit & 1:
            QPC.take(qp.context, context, name)
    qp.load()
    if target is QpState.SQD:
        qp.drain(event=bool(command.in_modifier & MODIFIER_SQD_EVENT))
    else:
        qp.set_state(PairState[target.name])
    if command.opcode == Opcode.INIT2RTR_QP:
        adapter.faults.connected(qp.qpn)


def to_error(adapter: Adapter, command: Command) -> None:
    """Flush everything, also what is posted later (2ERR_QP)."""
    _find(adapter, command).enter_error()


def to_reset(adapter: Adapter, command: Command) -> None:
    """Destroy a queue pair (2RST_QP), which accesses no memory from then on; always succeeds."""
    adapter.qps.destroy(command.in_modifier & QPN_MASK)


def query(adapter: Adapter, command: Command) -> bytes:
    """Return the context with the live counters (QUERY_QP)."""
    qpn = command.in_modifier & QPN_MASK
    qp = adapter.pair(qpn)
    if qp is None:
        return bytes(QPC_MAILBOX_OFFSET) + empty_context(qpn)
    return bytes(QPC_MAILBOX_OFFSET) + context_of(qp)


def empty_context(qpn: int) -> bytes:
    """Return the context of a queue pair in RST, as QUERY_QP shows it."""
    return bytes(QPC.pack(local_qpn=qpn))


def card_state(qp: HcaPair) -> QpState:
    """Return the state of a queue pair in the numbers of its context."""
    drains = qp.state is PairState.SQD and not qp.engine.idle
    return QpState.SQDRAINING if drains else STATES[qp.state]


def context_of(qp: HcaPair) -> bytes:
    """Return the context of a queue pair with the live counters."""
    context = bytearray(qp.context)
    QPC.set(context, "local_qpn", qp.qpn)
    QPC.set(context, "state", int(card_state(qp)))
    QPC.set(context, "next_recv_psn", qp.responder.psn)
    QPC.set(context, "msn", qp.responder.msn)
    QPC.set(context, "next_send_psn", qp.engine.next_psn)
    if isinstance(qp.sq, SendRing):
        QPC.set(context, "sq_wqe_counter", qp.sq.index & 0xFFFF)
    if isinstance(qp.rq, ReceiveRing):
        QPC.set(context, "rq_wqe_counter", qp.rq.index)
    return bytes(context)


RULES: dict[int, Rule] = {
    Opcode.RST2INIT_QP: Rule(create),
    Opcode.INIT2INIT_QP: Rule(modify),
    Opcode.INIT2RTR_QP: Rule(modify),
    Opcode.RTR2RTS_QP: Rule(modify),
    Opcode.RTS2RTS_QP: Rule(modify),
    Opcode.SQERR2RTS_QP: Rule(modify),
    Opcode.RTS2SQD_QP: Rule(modify),
    Opcode.SQD2SQD_QP: Rule(modify),
    Opcode.SQD2RTS_QP: Rule(modify),
    Opcode.TOERR_QP: Rule(to_error),
    Opcode.TORST_QP: Rule(to_reset, closing=True),
    Opcode.QUERY_QP: Rule(query),
}
