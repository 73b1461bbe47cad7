"""Commands on queue pairs (Linux `ib/qpc.c`, `ib/qp.c: __mlx5_ib_modify_qp`).

Drivers build a context from zeros for each transition and fill in what they mean to change, so
zero never means "set to zero": each transition takes what belongs to it, and `OptPar` says what
else.
"""

from __future__ import annotations

from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.page_faults import PAGE_FAULT_RESUME
from bluebridge.device.layout.mlx5.queue_pairs import (
    QP_CONTEXT,
    QP_IN,
    QPC,
    TRANSITIONS,
    OptPar,
    QpState,
)
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.command import Rule, number_of, numbered
from bluebridge.device.mlx5.objects.pairs import CardPair
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.rdma.vocabulary import PairState

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
    OptPar.PM_STATE: "migration",
    OptPar.RETRY_COUNT: "retry_count",
    OptPar.RNR_RETRY: "rnr_retry",
    OptPar.ACK_TIMEOUT: "pri_ack_timeout",
    OptPar.COUNTER_SET: "counter_set",
}
"""The context field by the bit of the optional parameter mask that announces it."""

INITIAL = (
    "mtu", "log_message", "counter_set", "pri_pkey_index", "pri_port", "log_ack_req", "remote_read",
    "remote_write", "remote_atomic", "atomic_mode", "qkey", "reserved_lkey", "migration",
)  # fmt: skip
"""The fields that RST2INIT_QP takes over what CREATE_QP said, where they are not zero."""


def create(adapter: Adapter, data: bytes) -> bytes:
    """Make a queue pair in RST, and return its number."""
    return numbered(adapter.objects.rdma.create_pair(data))


def destroy(adapter: Adapter, data: bytes) -> None:
    """Destroy a queue pair."""
    adapter.objects.rdma.destroy_pair(number_of(data))


def modify(adapter: Adapter, data: bytes) -> bytes:
    """Carry out a transition that carries a context."""
    rdma, qpn = adapter.objects.rdma, number_of(data)
    sources, target = TRANSITIONS[int.from_bytes(data[:2], "big")]
    state = rdma.state(qpn)
    if state not in sources:
        raise Refused(Status.BAD_QP_STATE, f"QP {qpn:#x} is {state.name}, not {sources[0].name}")
    context = data[QP_CONTEXT : QP_CONTEXT + QPC.size]
    pair = rdma.pair(qpn)
    if pair is None:
        made = rdma.made.known(qpn)
        merged = bytearray(made.context)
        if not QPC.get(merged, "pd"):
            # A driver's pair of UMR gets its domain here (ib/qp.c: create_kernel_qp sets none).
            QPC.take(merged, context, "pd")
            made.context = bytes(merged)
        QPC.take_if_set(merged, context, *INITIAL)
        rdma.initialise(qpn, merged)
        return b""
    if target is QpState.RTR:
        _merge_rtr(pair, context)
    elif state is QpState.RTR:
        _merge_rts(pair, context)
    mask = QP_IN.get(data, "mask")
    for bit, name in OPTIONAL.items():
        if mask & bit:
            QPC.take(pair.context, context, name)
    pair.load()
    pair.set_state(PairState[target.name])
    if target is QpState.RTR:
        adapter.faults.connected(qpn)
    return b""


def _merge_rtr(pair: CardPair, source: bytes) -> None:
    """Take over the path and the responder's fields, for INIT2RTR_QP."""
    QPC.take(pair.context, source, "remote_qpn", "next_recv_psn", "rra_max")
    QPC.take_if_set(pair.context, source, "mtu", "log_message", "min_rnr_timer")
    timeout, pkey_index, port = (
        QPC.get(pair.context, name) for name in ("pri_ack_timeout", "pri_pkey_index", "pri_port")
    )
    if pair.connected:
        QPC.take(pair.context, source, "pri_path")
        QPC.set(pair.context, "pri_pkey_index", pkey_index)  # it changes by the mask only
        QPC.set(pair.context, "pri_port", port)
        if not QPC.get(source, "pri_ack_timeout"):
            QPC.set(pair.context, "pri_ack_timeout", timeout)
    pair.responder.psn = QPC.get(source, "next_recv_psn")


def _merge_rts(pair: CardPair, source: bytes) -> None:
    """Take over the requester's fields, for RTR2RTS_QP."""
    QPC.take(pair.context, source, "next_send_psn")
    QPC.take_if_set(pair.context, source, "pri_ack_timeout", "retry_count", "rnr_retry", "sra_max")
    pair.engine.next_psn = QPC.get(source, "next_send_psn")


def to_error(adapter: Adapter, data: bytes) -> None:
    """Flush everything, also what is posted later."""
    adapter.objects.rdma.to_error(number_of(data))


def to_reset(adapter: Adapter, data: bytes) -> None:
    """Forget what was posted; the queue pair accesses no memory from then on."""
    adapter.objects.rdma.to_reset(number_of(data))


def query(adapter: Adapter, data: bytes) -> bytes:
    """Return the context with the live counters."""
    rdma, qpn = adapter.objects.rdma, number_of(data)
    pair = rdma.pair(qpn)
    context = rdma.made.known(qpn).context if pair is None else pair.query()
    return bytes(QP_CONTEXT) + context


def page_fault_resume(adapter: Adapter, data: bytes) -> None:
    """Go on with what waits for absent pages, or fail it."""
    adapter.objects.rdma.page_faults.resume(data)


RULES: dict[int, Rule] = {
    Opcode.CREATE_QP: Rule(create, QP_IN.size),
    Opcode.DESTROY_QP: Rule(destroy),
    Opcode.QUERY_QP: Rule(query),
    Opcode.PAGE_FAULT_RESUME: Rule(page_fault_resume, PAGE_FAULT_RESUME.size),
    Opcode.TOERR_QP: Rule(to_error),
    Opcode.TORST_QP: Rule(to_reset),
    **{opcode: Rule(modify, QP_CONTEXT + QPC.size) for opcode in TRANSITIONS},
}
