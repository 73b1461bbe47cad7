"""The catalogue of faults by name: what a user may ask of an adapter that works, and what follows.

Reactions of the stock driver: Linux `mlx4/cmd.c`, `mlx4/catas.c`, `mlx4/eq.c: mlx4_eq_int`,
`infiniband/hw/mlx4/cq.c: mlx4_ib_poll_one`.
"""

from __future__ import annotations

from collections.abc import Mapping

from bluebridge.device.layout.failures import Failure
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
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.cqe import FAILURES, CompletionStatus
from bluebridge.device.layout.mlx4.eqe import (
    PORT_MNG_GUID_INFO,
    PORT_MNG_PKEY_TABLE,
    PORT_MNG_PORT_INFO,
    EventType,
)

_LOAD = "mlx4_core does not load; a reload works again"
_FATAL = "mlx4_core resets the adapter: a closing command may not fail"


def _command(name: str, opcode: Opcode, status: Status, seen: str) -> NamedFault:
    return NamedFault(
        name, Layer.FIRMWARE, Effect.COMMAND_FAILS, f"{opcode.name} ends with {status.name}", seen,
        takes=("status", *COUNTED), fixed={"opcode": opcode.name, "status": status.name},
    )  # fmt: skip


def _status(status: CompletionStatus, failure: Failure) -> NamedFault:
    return NamedFault(
        f"wc-{failure.verbs.lower().replace('_', '-')}", Layer.QUEUE, Effect.CQE_STATUS,
        f"a completion says syndrome {status:#04x}, vendor syndrome {failure.vendor_syndrome:#04x} "
        "although its work was done",
        f"IBV_WC_{failure.verbs}", takes=("vendor", *OF_PAIRS), fixed={"status": status.name},
    )  # fmt: skip


def _event(name: str, event: EventType, number: str, seen: str) -> NamedFault:
    return NamedFault(
        f"event-{name}", Layer.EVENT, Effect.EVENT,
        f"an event of type {event:#04x} that nothing caused", seen,
        needs=(number,), fixed={"event": event.name},
    )  # fmt: skip


def _port_event(name: str, subtype: int, changed: int, seen: str) -> NamedFault:
    return NamedFault(
        f"event-{name}", Layer.PORT, Effect.PORT_EVENT,
        f"an event of management, subtype {subtype:#04x}, of port 1, in which nothing has changed",
        seen, fixed={"subtype": str(subtype), "changed": str(changed)},
    )  # fmt: skip


def _answer(name: str, field_: str, value: int, seen: str) -> NamedFault:
    fixed = {"opcode": Opcode.QUERY_DEV_CAP.name, "field": field_, "value": str(value)}
    return NamedFault(
        name, Layer.FIRMWARE, Effect.COMMAND_WRONG,
        f"QUERY_DEV_CAP answers {field_} = {value}, for a driver that is loaded now", seen,
        takes=("value", *COUNTED), fixed=fixed, count=NO_LIMIT,
    )  # fmt: skip


FAULTS = (
    NamedFault("device-fatal", Layer.FIRMWARE, Effect.FATAL,
               "the adapter stops until software resets it",
               "IBV_EVENT_DEVICE_FATAL; mlx4_core resets it within 5 s", takes=("text",)),
    NamedFault("command-fails", Layer.FIRMWARE, Effect.COMMAND_FAILS,
               "a command ends with a status", "command 0x... failed: fw status = 0x...",
               needs=("opcode", "status"), takes=COUNTED),
    NamedFault("command-late", Layer.FIRMWARE, Effect.COMMAND_LATE,
               "a command is carried out later", "nothing below 60 s", needs=("opcode", "ms"),
               takes=COUNTED),
    NamedFault("command-never", Layer.FIRMWARE, Effect.COMMAND_NEVER,
               "a command is not carried out before the fault is cleared or the adapter reset",
               "command 0x... timed out (go bit not cleared) after 60 s, then a reset",
               needs=("opcode",), takes=COUNTED),
    _command("map-icm-fails", Opcode.MAP_ICM, Status.EXCEED_LIM, "ENOMEM of the verb"),
    _command("reg-mr-fails", Opcode.SW2HW_MPT, Status.EXCEED_LIM, "ibv_reg_mr: ENOMEM"),
    _command("create-cq-fails", Opcode.SW2HW_CQ, Status.EXCEED_LIM, "ibv_create_cq: ENOMEM"),
    _command("create-srq-fails", Opcode.SW2HW_SRQ, Status.EXCEED_LIM, "ibv_create_srq: ENOMEM"),
    _command("arm-srq-fails", Opcode.ARM_SRQ, Status.BAD_PARAM, "ibv_modify_srq: EINVAL"),
    _command("resize-cq-fails", Opcode.MODIFY_CQ, Status.BAD_SIZE, "ibv_resize_cq: ENOMEM"),
    _command("qp-to-init-fails", Opcode.RST2INIT_QP, Status.BAD_QP_STATE, "ibv_modify_qp: EINVAL"),
    _command("qp-to-rtr-fails", Opcode.INIT2RTR_QP, Status.BAD_QP_STATE, "ibv_modify_qp: EINVAL"),
    _command("qp-to-rts-fails", Opcode.RTR2RTS_QP, Status.BAD_QP_STATE, "ibv_modify_qp: EINVAL"),
    _command("qp-to-err-fails", Opcode.TOERR_QP, Status.BAD_QP_STATE, "ibv_modify_qp: EINVAL"),
    _command("query-qp-fails", Opcode.QUERY_QP, Status.BAD_QP_STATE, "ibv_query_qp: EINVAL"),
    _command("query-port-fails", Opcode.QUERY_PORT, Status.INTERNAL_ERR, "ibv_query_port: EIO"),
    _command("mad-fails", Opcode.MAD_IFC, Status.BAD_PKT, "ibv_query_device: EIO"),
    _command("attach-mcast-fails", Opcode.WRITE_MCG, Status.EXCEED_LIM, "ibv_attach_mcast: ENOMEM"),
    _command("query-counters-fails", Opcode.DIAG_RPRT, Status.INTERNAL_ERR, "hw_counters: EIO"),
    _command("write-mtt-fails", Opcode.WRITE_MTT, Status.BAD_PARAM, "ibv_reg_mr: EINVAL"),
    _command("update-qp-fails", Opcode.UPDATE_QP, Status.BAD_OP, "mlx4_en: no loopback filter"),
    _command("qp-to-sqd-fails", Opcode.RTS2SQD_QP, Status.BAD_QP_STATE, "ibv_modify_qp: EINVAL"),
    _command("set-port-fails", Opcode.SET_PORT, Status.BAD_PARAM, "no GID, MAC or MTU is set"),
    _command("init-port-fails", Opcode.INIT_PORT, Status.INTERNAL_ERR, "the port stays down"),
    _command("query-fw-fails", Opcode.QUERY_FW, Status.INTERNAL_ERR, _LOAD),
    _command("map-fa-fails", Opcode.MAP_FA, Status.ICM_ERROR, _LOAD),
    _command("run-fw-fails", Opcode.RUN_FW, Status.BAD_NVMEM, _LOAD),
    _command("query-dev-cap-fails", Opcode.QUERY_DEV_CAP, Status.INTERNAL_ERR, _LOAD),
    _command("set-icm-size-fails", Opcode.SET_ICM_SIZE, Status.EXCEED_LIM, _LOAD),
    _command("init-hca-fails", Opcode.INIT_HCA, Status.BAD_PARAM, _LOAD),
    _command("query-adapter-fails", Opcode.QUERY_ADAPTER, Status.INTERNAL_ERR, _LOAD),
    _command("create-eq-fails", Opcode.SW2HW_EQ, Status.EXCEED_LIM, _LOAD),
    _command("map-eq-fails", Opcode.MAP_EQ, Status.BAD_PARAM, _LOAD),
    _command("nop-fails", Opcode.NOP, Status.INTERNAL_ERR, "no MSI-X, then legacy interrupts"),
    NamedFault("command-wrong", Layer.FIRMWARE, Effect.COMMAND_WRONG,
               "a command's answer has another value in a field", "what the driver makes of it",
               needs=("opcode", "field", "value"), takes=COUNTED, count=NO_LIMIT),
    _answer("short-send-queues", "log_max_qp_wqes", 6, "ibv_create_qp: EINVAL above 64 entries"),
    _answer("short-cqs", "log_max_cqes", 9, "ibv_create_cq: EINVAL above 512 entries"),
    _answer("short-srqs", "log_max_srq_wqes", 4, "ibv_create_srq: EINVAL above 16 entries"),
    _answer("few-sges", "max_sq_sge", 1, "ibv_create_qp: EINVAL with more than one SGE"),
    _answer("few-uars", "uar_size_code", 0, "ibv_open_device: ENOMEM when many are open"),
    _answer("little-icm", "max_icm_size", 1 << 20, _LOAD),
    _answer("no-ports", "num_ports", 0, _LOAD),
    _command("dereg-mr-fails", Opcode.HW2SW_MPT, Status.INTERNAL_ERR, _FATAL),
    _command("destroy-cq-fails", Opcode.HW2SW_CQ, Status.INTERNAL_ERR, _FATAL),
    _command("destroy-srq-fails", Opcode.HW2SW_SRQ, Status.INTERNAL_ERR, _FATAL),
    _command("destroy-qp-fails", Opcode.TORST_QP, Status.INTERNAL_ERR, _FATAL),
    NamedFault("cqe-lost", Layer.QUEUE, Effect.CQE_LOST, "a completion is not written",
               "the work request hangs", takes=OF_PAIRS),
    NamedFault("hung-wr", Layer.QUEUE, Effect.CQE_LOST, "no completion is written",
               "work requests hang; the send queue fills up, ibv_post_send: ENOMEM",
               takes=OF_PAIRS, count=NO_LIMIT),
    NamedFault("cqe-doubled", Layer.QUEUE, Effect.CQE_DOUBLED, "a completion is written twice",
               "a second completion of one work request", takes=OF_PAIRS),
    NamedFault("cqe-late", Layer.QUEUE, Effect.CQE_LATE,
               "a completion is written later, behind others",
               "completion after the program gave up", needs=("ms",), takes=OF_PAIRS),
    NamedFault("slow-drain", Layer.QUEUE, Effect.CQE_LATE, "every completion is written later",
               "completions slow to drain", needs=("ms",), takes=OF_PAIRS, count=NO_LIMIT),
    NamedFault(
        "cqe-foreign", Layer.QUEUE, Effect.CQE_FOREIGN,
        "a completion names a queue pair that does not exist",
        "ibv_poll_cq: -2; in the kernel mlx4_ib_poll_one does not check and the guest may oops",
        takes=OF_PAIRS,
    ),
    *(_status(status, failure) for status, failure in FAILURES.items()),
    NamedFault("wc-general-err", Layer.QUEUE, Effect.CQE_STATUS,
               "a completion says a syndrome that no driver knows", "IBV_WC_GENERAL_ERR",
               takes=("vendor", *OF_PAIRS), fixed={"status": "0x7f"}),
    NamedFault("wr-unsupported", Layer.QUEUE, Effect.WR_REFUSED,
               "a work request is one that the adapter cannot carry out, whatever it promised",
               "ibv_post_send succeeds; IBV_WC_LOC_QP_OP_ERR, then the queue pair is in ERR",
               takes=OF_PAIRS, count=NO_LIMIT),
    NamedFault("cq-overrun", Layer.QUEUE, Effect.CQ_OVERRUN,
               "the completion queue is broken, as after an overrun: no entry ever again",
               "IBV_EVENT_CQ_ERR", needs=("cqn",)),
    NamedFault("doorbell-ignored", Layer.QUEUE, Effect.DOORBELL_IGNORED,
               "the send queue takes no doorbell and no BlueFlame entry until the fault is cleared",
               "posted work waits", needs=("qpn",), count=NO_LIMIT),
    NamedFault("dma-refused", Layer.MEMORY, Effect.DMA_REFUSED, "the adapter cannot reach one page",
               "LOC_PROT_ERR, QP_FATAL or CQ_ERR, by what is in the page", needs=("address",)),
    NamedFault("key-locked", Layer.MEMORY, Effect.KEY_LOCKED, "a memory region permits nothing",
               "LOC_PROT_ERR here, REM_ACCESS_ERR at the peer", needs=("key",)),
    *FLIPS,
    NamedFault("eqe-lost", Layer.EVENT, Effect.EQE_LOST, "an event of a type is not written",
               "CMD: time-out after 60 s; COMP: waits until the next event", needs=("event",),
               takes=COUNTED),
    NamedFault("interrupt-lost", Layer.EVENT, Effect.INTERRUPT_LOST, "an interrupt is not sent",
               "its events wait for the next one", needs=("vector",), takes=COUNTED),
    NamedFault("vector-masked", Layer.EVENT, Effect.INTERRUPT_LOST,
               "an MSI-X vector is masked for ever", "its events wait until the fault is cleared",
               needs=("vector",), count=NO_LIMIT),
    _event("path-mig", EventType.PATH_MIG, "qpn", "IBV_EVENT_PATH_MIG"),
    _event("path-mig-err", EventType.PATH_MIG_FAILED, "qpn", "IBV_EVENT_PATH_MIG_ERR"),
    _event("comm-est", EventType.COMM_EST, "qpn", "IBV_EVENT_COMM_EST"),
    _event("sq-drained", EventType.SQ_DRAINED, "qpn", "IBV_EVENT_SQ_DRAINED"),
    _event("qp-last-wqe", EventType.SRQ_QP_LAST_WQE, "qpn", "IBV_EVENT_QP_LAST_WQE_REACHED"),
    _event("qp-fatal", EventType.WQ_CATAS_ERROR, "qpn", "IBV_EVENT_QP_FATAL"),
    _event("qp-req-err", EventType.WQ_INVALID_REQUEST, "qpn", "IBV_EVENT_QP_REQ_ERR"),
    _event("qp-access-err", EventType.WQ_ACCESS_ERROR, "qpn", "IBV_EVENT_QP_ACCESS_ERR"),
    _event("cq-err", EventType.CQ_ERROR, "cqn", "IBV_EVENT_CQ_ERR"),
    _event("srq-err", EventType.SRQ_CATAS_ERROR, "srqn", "IBV_EVENT_SRQ_ERR"),
    _event("srq-limit", EventType.SRQ_LIMIT, "srqn", "IBV_EVENT_SRQ_LIMIT_REACHED"),
    _port_event("lid-change", PORT_MNG_PORT_INFO, 1 << 2, "IBV_EVENT_LID_CHANGE"),
    _port_event("client-reregister", PORT_MNG_PORT_INFO, 1 << 3, "IBV_EVENT_CLIENT_REREGISTER"),
    _port_event("pkey-change", PORT_MNG_PKEY_TABLE, 1, "IBV_EVENT_PKEY_CHANGE"),
    _port_event("gid-change", PORT_MNG_GUID_INFO, 1,
                "IBV_EVENT_GID_CHANGE, which no program of a guest has been seen to get"),
    NamedFault(
        "port-flap", Layer.PORT, Effect.PORT_FLAP,
        "the cable of port 1 is pulled and plugged in again, each state for so many milliseconds",
        "IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE", needs=("times", "ms"),
    ),
    NamedFault("port-down", Layer.PORT, Effect.PORT_DOWN,
               "the cable of port 1 is out until it is cleared",
               "IBV_EVENT_PORT_ERR; RETRY_EXC_ERR", count=NO_LIMIT),
    NamedFault(
        "port-late", Layer.PORT, Effect.PORT_LATE,
        "the cable is out for so many milliseconds; as long again nothing passes an active port",
        "IBV_EVENT_PORT_ACTIVE, and still RETRY_EXC_ERR", needs=("ms",),
    ),
    NamedFault("gid-vanishes", Layer.PORT, Effect.GID_VANISHES,
               "an entry of port 1's GID table is empty in the adapter", "the peer's RETRY_EXC_ERR",
               needs=("index",)),
    *WIRE,
    NamedFault("function-reset", Layer.BUS, Effect.FUNCTION_RESET,
               "a function-level reset that the driver did not ask for",
               "commands time out, then mlx4_core resets the adapter"),
    NamedFault("registers-lost", Layer.BUS, Effect.REGISTERS_LOST,
               "reads of BARs are all ones and stores get lost, as after completion time-outs",
               "mlx4_core takes it for an internal error and resets the adapter", count=NO_LIMIT),
    NamedFault(
        "surprise-removal", Layer.BUS, Effect.REMOVED,
        "the function is gone, configuration space included, until the fault is cleared; then it "
        "is as after power-on", "mlx4_core: reset fails, the guest may hit a BUG", count=NO_LIMIT,
    ),
    NamedFault("ntb-doorbell-lost", Layer.BRIDGE, Effect.DOORBELL_LOST,
               "a doorbell that the guest rings does not reach its peer",
               "ntb_transport: the peer sees the frame at the next doorbell; ntb_pingpong stops",
               takes=COUNTED),
    NamedFault("ntb-scratchpad-stuck", Layer.BRIDGE, Effect.SCRATCHPAD_STUCK,
               "a scratchpad of the guest's bridge keeps its value, whoever writes it",
               "ntb_transport: no link between the clients until the fault is cleared",
               needs=("index",), count=NO_LIMIT),
    NamedFault(
        "ntb-window-refused", Layer.BRIDGE, Effect.WINDOW_REFUSED,
        "an access of the guest through a window meets nothing: loads are all ones, stores are "
        "lost, a copy of the DMA engine ends with an error",
        "ntb_transport: the peer waits for the lost frame, also when the fault is over",
        takes=COUNTED, count=NO_LIMIT,
    ),
    NamedFault("dma-error", Layer.BRIDGE, Effect.DMA_ERROR,
               "a copy of the guest's DMA engine ends with an error and halts its channel",
               "ioatdma: Errors:, Reset channel..., Restart channel...; ntb_netdev goes on",
               takes=("error", *COUNTED), fixed={"error": "READ_DATA"}),
)  # fmt: skip

BY_NAME: Mapping[str, NamedFault] = {fault.name: fault for fault in FAULTS}
