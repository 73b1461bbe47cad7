"""The faults by name of a ConnectX-5, and what the stock driver makes of them.

They are called as those of `device.layout.mlx4.faults` and take the same. Reactions: Linux
`core/cmd.c: mlx5_cmd_out_err, wait_func`, `core/health.c`, `core/en_tx.c: mlx5e_poll_tx_cq`,
`core/en/reporter_tx.c`, `core/en/reporter_rx.c`, `core/eq.c: mlx5_eq_poll_irq_disabled`.
"""

from __future__ import annotations

from collections.abc import Mapping

from bluebridge.device.layout.faults import (
    COUNTED,
    FLIPS,
    NO_LIMIT,
    OF_PAIRS,
    WIRE,
    Effect,
    Layer,
    NamedFault,
)
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.cqe import NAMES_OF_STATUSES
from bluebridge.device.layout.mlx5.event_queues import EventType

_LOAD = "mlx5_core does not load; a reload works again"
_STATE = "ibv_modify_qp: EINVAL"
_ERROR_CQE = (
    "of frames: `Error cqe on cqn`, the tx health reporter recovers the queue; an RQ has a frame "
    "less, rx_wqe_err counts it"
)


def _command(name: str, opcode: Opcode, status: Status, seen: str) -> NamedFault:
    return NamedFault(
        name, Layer.FIRMWARE, Effect.COMMAND_FAILS, f"{opcode.name} ends with {status.name}", seen,
        takes=("status", *COUNTED), fixed={"opcode": opcode.name, "status": status.name},
    )  # fmt: skip


def _event(name: str, event: EventType, number: str, seen: str) -> NamedFault:
    return NamedFault(
        f"event-{name}", Layer.EVENT, Effect.EVENT,
        f"an event of type {event:#04x} that nothing caused", seen,
        needs=(number,), fixed={"event": event.name},
    )  # fmt: skip


def _status(status: int, verbs: str, own: str) -> NamedFault:
    return NamedFault(
        f"wc-{verbs.lower().replace('_', '-')}", Layer.QUEUE, Effect.CQE_STATUS,
        f"a completion says syndrome {status:#04x} although its work was done",
        f"IBV_WC_{verbs}; {_ERROR_CQE}",
        takes=("vendor", *OF_PAIRS), fixed={"status": own},
    )  # fmt: skip


FAULTS = (
    NamedFault("device-fatal", Layer.FIRMWARE, Effect.FATAL,
               "the adapter stops until software resets it",
               "mlx5_core: `Fatal error`, within 5 s it resets the adapter and starts anew",
               takes=("text",)),
    NamedFault("command-fails", Layer.FIRMWARE, Effect.COMMAND_FAILS,
               "a command ends with a status",
               "mlx5_cmd_out_err: NAME(0x...) failed, status ..., syndrome (0x...)",
               needs=("opcode", "status"), takes=COUNTED),
    NamedFault("command-late", Layer.FIRMWARE, Effect.COMMAND_LATE,
               "a command is carried out later", "nothing below 60 s", needs=("opcode", "ms"),
               takes=COUNTED),
    NamedFault("command-never", Layer.FIRMWARE, Effect.COMMAND_NEVER,
               "a command is not carried out before the fault is cleared or the adapter reset",
               "`No done completion` after 60 s; who asked for it gets an error",
               needs=("opcode",), takes=COUNTED),
    _command("reg-mr-fails", Opcode.CREATE_MKEY, Status.LIM_ERR,
             f"{_LOAD}; programs take keys of the stock and notice nothing"),
    _command("create-cq-fails", Opcode.CREATE_CQ, Status.LIM_ERR,
             "ibv_create_cq fails; an interface does not come up"),
    _command("create-srq-fails", Opcode.CREATE_RMP, Status.LIM_ERR, "ibv_create_srq: ENOMEM"),
    _command("qp-to-init-fails", Opcode.RST2INIT_QP, Status.BAD_QP_STATE, _STATE),
    _command("qp-to-rtr-fails", Opcode.INIT2RTR_QP, Status.BAD_QP_STATE, _STATE),
    _command("qp-to-rts-fails", Opcode.RTR2RTS_QP, Status.BAD_QP_STATE, _STATE),
    _command("qp-to-err-fails", Opcode.TOERR_QP, Status.BAD_QP_STATE, _STATE),
    _command("query-qp-fails", Opcode.QUERY_QP, Status.BAD_QP_STATE,
             "mlx5_cmd_out_err: QUERY_QP(0x50b); ibv_query_qp: EINVAL"),
    _command("query-port-fails", Opcode.QUERY_VPORT_STATE, Status.INTERNAL_ERR,
             "the state of the link is not known: it counts as down"),
    _command("query-dev-cap-fails", Opcode.QUERY_HCA_CAP, Status.INTERNAL_ERR, _LOAD),
    _command("init-hca-fails", Opcode.INIT_HCA, Status.BAD_PARAM, _LOAD),
    _command("create-eq-fails", Opcode.CREATE_EQ, Status.LIM_ERR, _LOAD),
    _command("dereg-mr-fails", Opcode.DESTROY_MKEY, Status.INTERNAL_ERR,
             "a line of the kernel; keys of programs go back into the stock without it"),
    _command("destroy-cq-fails", Opcode.DESTROY_CQ, Status.INTERNAL_ERR,
             "ibv_destroy_cq fails"),
    NamedFault("cqe-lost", Layer.QUEUE, Effect.CQE_LOST, "a completion is not written",
               "a program waits for ever; SQ: the next one completes its frame as well; "
               "RQ: a frame less", takes=OF_PAIRS),
    NamedFault("hung-wr", Layer.QUEUE, Effect.CQE_LOST, "no completion is written",
               "a program waits for ever; SQ: `TX timeout`, the tx health reporter recovers the "
               "queue; RQ: nothing arrives",
               takes=OF_PAIRS, count=NO_LIMIT),
    NamedFault("cqe-doubled", Layer.QUEUE, Effect.CQE_DOUBLED, "a completion is written twice",
               "libmlx5 and the driver trust it: the queue is out of step, a program hangs",
               takes=OF_PAIRS),
    NamedFault("cqe-late", Layer.QUEUE, Effect.CQE_LATE,
               "a completion is written later, behind others", "a frame is late",
               needs=("ms",), takes=OF_PAIRS),
    NamedFault("slow-drain", Layer.QUEUE, Effect.CQE_LATE, "every completion is written later",
               "completions slow to drain", needs=("ms",), takes=OF_PAIRS, count=NO_LIMIT),
    NamedFault("cqe-foreign", Layer.QUEUE, Effect.CQE_FOREIGN,
               "a completion names a queue that does not exist",
               "nothing: libmlx5 looks at the user index, a network device at the entry's index",
               takes=OF_PAIRS),
    *(_status(status, names[0], names[-1]) for status, names in NAMES_OF_STATUSES.items()),
    NamedFault("wr-unsupported", Layer.QUEUE, Effect.WR_REFUSED,
               "a work request is one that the adapter cannot carry out, whatever it promised",
               _ERROR_CQE, takes=OF_PAIRS, count=NO_LIMIT),
    NamedFault("cq-overrun", Layer.QUEUE, Effect.CQ_OVERRUN,
               "the completion queue is broken, as after an overrun: no entry ever again",
               "CQ error on CQN 0x..., syndrome 0x1; then as hung-wr", needs=("cqn",)),
    NamedFault("doorbell-ignored", Layer.QUEUE, Effect.DOORBELL_IGNORED,
               "the send queue takes no doorbell until the fault is cleared",
               "what is posted waits; of frames `TX timeout` after 15 s", needs=("qpn",),
               count=NO_LIMIT),
    NamedFault("dma-refused", Layer.MEMORY, Effect.DMA_REFUSED, "the adapter cannot reach one page",
               "an error of an SQ, an RQ, a CQ or a command, by what is in the page",
               needs=("address",)),
    NamedFault("key-locked", Layer.MEMORY, Effect.KEY_LOCKED, "a memory region permits nothing",
               "LOC_PROT_ERR here, REM_ACCESS_ERR at the peer", needs=("key",)),
    *FLIPS,
    NamedFault("eqe-lost", Layer.EVENT, Effect.EQE_LOST, "an event of a type is not written",
               "COMMAND: recovered after 60 s; COMPLETION: waits until the next event",
               needs=("event",), takes=COUNTED),
    NamedFault("interrupt-lost", Layer.EVENT, Effect.INTERRUPT_LOST, "an interrupt is not sent",
               "its events wait for the next one; `Recovered ... eqes` after a TX timeout",
               needs=("vector",), takes=COUNTED),
    NamedFault("vector-masked", Layer.EVENT, Effect.INTERRUPT_LOST,
               "an MSI-X vector is masked for ever", "its events wait until the fault is cleared",
               needs=("vector",), count=NO_LIMIT),
    _event("path-mig", EventType.PATH_MIGRATED, "qpn", "IBV_EVENT_PATH_MIG"),
    _event("path-mig-err", EventType.PATH_FAILED, "qpn", "IBV_EVENT_PATH_MIG_ERR"),
    _event("comm-est", EventType.COMMUNICATION_ESTABLISHED, "qpn", "IBV_EVENT_COMM_EST"),
    _event("sq-drained", EventType.SQ_DRAINED, "qpn", "IBV_EVENT_SQ_DRAINED"),
    _event("qp-last-wqe", EventType.LAST_WQE, "qpn", "IBV_EVENT_QP_LAST_WQE_REACHED"),
    _event("qp-fatal", EventType.WQ_CATASTROPHIC, "qpn", "IBV_EVENT_QP_FATAL"),
    _event("qp-req-err", EventType.WQ_INVALID_REQUEST, "qpn", "IBV_EVENT_QP_REQ_ERR"),
    _event("qp-access-err", EventType.WQ_ACCESS_ERROR, "qpn", "IBV_EVENT_QP_ACCESS_ERR"),
    _event("cq-err", EventType.CQ_ERROR, "cqn", "CQ error on CQN 0x...; IBV_EVENT_CQ_ERR"),
    _event("srq-err", EventType.SRQ_CATASTROPHIC, "srqn", "IBV_EVENT_SRQ_ERR"),
    _event("srq-limit", EventType.SRQ_LIMIT, "srqn", "IBV_EVENT_SRQ_LIMIT_REACHED"),
    NamedFault(
        "port-flap", Layer.PORT, Effect.PORT_FLAP,
        "the cable of port 1 is pulled and plugged in again, each state for so many milliseconds",
        "Link down, Link up", needs=("times", "ms"),
    ),
    NamedFault("port-down", Layer.PORT, Effect.PORT_DOWN,
               "the cable of port 1 is out until it is cleared", "Link down", count=NO_LIMIT),
    NamedFault(
        "port-late", Layer.PORT, Effect.PORT_LATE,
        "the cable is out for so many milliseconds; as long again nothing passes an active port",
        "Link up, and still no frame", needs=("ms",),
    ),
    *WIRE,
    NamedFault("function-reset", Layer.BUS, Effect.FUNCTION_RESET,
               "a function-level reset that the driver did not ask for",
               "commands time out; the health counter stands still, then mlx5_core recovers"),
    NamedFault("registers-lost", Layer.BUS, Effect.REGISTERS_LOST,
               "reads of BARs are all ones and stores get lost, as after completion time-outs",
               "mlx5_core takes it for a fatal error and waits for the function", count=NO_LIMIT),
    NamedFault(
        "surprise-removal", Layer.BUS, Effect.REMOVED,
        "the function is gone, configuration space included, until the fault is cleared; then it "
        "is as after power-on", "mlx5_core: PCI slot is unavailable", count=NO_LIMIT,
    ),
)  # fmt: skip

BY_NAME: Mapping[str, NamedFault] = {fault.name: fault for fault in FAULTS}
