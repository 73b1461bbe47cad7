"""The row of ConnectX-3 adapters: registers, doorbells, commands, entries of their queues."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from struct import Struct

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout import fields
from bluebridge.device.layout.blueflame import HEAD_BYTES, LINE
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.ibverbs import RECEIVE, RECEIVE_WRITE
from bluebridge.device.layout.mlx4 import bar0, commands, contexts, cqe, eqe, flash, uar
from bluebridge.device.layout.mlx4.commands import Opcode, name_of
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.layout.mlx4.wqe import DS_MASK, SendOpcode
from bluebridge.device.layout.pci import BOARD_REGISTERS
from bluebridge.host_tools.analyzer.devices import mlx4_entries as entries
from bluebridge.host_tools.analyzer.devices import model
from bluebridge.host_tools.analyzer.transaction import OK, Role

_OPCODE = 0xFFF
_SIZES_END = 0x0C
"""The bytes of a queue pair's context that have its service and the sizes of its rings."""
_EVENT_SIZE_END = 0x10  # The bytes of an event queue's context that have the size of its ring
_LOG_UNIT = 4  # The logarithm of the unit of strides
_FLUSHING = (contexts.ServiceType.UC, contexts.ServiceType.UD, contexts.ServiceType.MLX)
"""Services whose send queue alone is flushed when a send fails."""
_EQS_OF_PAGE = 4
_NOUNS = ("QP", "CQ", "SRQ", "EQ", "MPT", "MTT")
"""Objects of commands, by the ends of their names; an SRQ is no RQ."""
_COMPLETED = Struct(">I20xH")
"""QPN and index in a completion entry: fields `qpn` and `wqe_index` of `CQE`."""
_EVENTS: dict[int, model.EventKind] = {
    EventType.COMP: model.EventKind.COMPLETION,
    EventType.CMD: model.EventKind.COMMAND,
    EventType.PORT_CHANGE: model.EventKind.PORT,
    EventType.PORT_MNG_CHG: model.EventKind.PORT,
    **dict.fromkeys((
        EventType.CQ_ERROR, EventType.WQ_CATAS_ERROR, EventType.LOCAL_CATAS_ERROR,
        EventType.ECC_DETECT, EventType.EQ_OVERFLOW, EventType.WQ_INVALID_REQUEST,
        EventType.WQ_ACCESS_ERROR, EventType.SRQ_CATAS_ERROR, EventType.RECOVERABLE_ERROR,
    ), model.EventKind.FAULT),
}  # fmt: skip


def _register_words(place: model.Place, value: int) -> str | None:
    """Describe the value of a register: event queues by number, commands by name."""
    block, index, register = place
    if block is uar.UAR and register.name.startswith("eq"):
        eqn = index * _EQS_OF_PAGE + int(register.name[2:])
        return f"EQ {eqn} {register.decode(value).partition(' ')[2]}".strip()
    if register.name == "control":
        return f"{block.name}.{register.decode(value)} ({name_of(value & _OPCODE)})"
    return None


def _written(event: Event) -> tuple[Role, int]:
    if event.bar != 2:
        return Role.REGISTER_WRITE, 0
    offset = event.address
    if offset >= uar.UAR_AREA_SIZE:
        return Role.BLUEFLAME, 0
    page, register = divmod(offset, uar.PAGE_SIZE)
    if register == uar.SEND_DOORBELL:
        return Role.DOORBELL, int.from_bytes(event.data[:3], "big")
    if register == uar.CQ_DOORBELL:
        return Role.CQ_ARM, int.from_bytes(event.data[1:4], "big")
    if uar.EQ_DOORBELL <= register < uar.EQ_DOORBELL + 8 * _EQS_OF_PAGE:
        return Role.EQ_ARM, page * _EQS_OF_PAGE + (register - uar.EQ_DOORBELL) // 8
    return Role.REGISTER_WRITE, 0


def _send_head(data: model.Data) -> model.SendHead:
    return model.SendHead(
        model.named(SendOpcode, data[3] & 0x1F),
        (data[7] & DS_MASK) * 16,
        int.from_bytes(data[1:3], "big"),
        int.from_bytes(data[4:7], "big"),
    )


def _failure(data: model.Data) -> int | None:
    entry = data[-cqe.CQE_SIZE :]
    if len(entry) < cqe.CQE_SIZE or entry[cqe.OWNER_OFFSET] & cqe.OPCODE_MASK != cqe.OPCODE_ERROR:
        return None
    return cqe.ERROR_CQE.get(entry, "syndrome")


def _done(data: model.Data, *, send: bool) -> model.Completed | None:
    entry = bytes(data[-cqe.CQE_SIZE :])  # the second half of a large entry
    if len(entry) < cqe.CQE_SIZE or bool(entry[cqe.OWNER_OFFSET] & cqe.IS_SEND_BIT) is not send:
        return None
    qpn, index = _COMPLETED.unpack_from(entry)
    syndrome = _failure(entry)
    status = OK if syndrome is None else model.names_of(cqe.NAMES_OF_STATUSES, syndrome)[0]
    return model.Completed(qpn & 0xFFFFFF, index, status)


def _event(data: model.Data) -> model.QueueEvent:
    code = data[1] if len(data) > 1 else -1
    kind = _EVENTS.get(code, model.EventKind.OTHER)
    if kind is model.EventKind.COMPLETION:
        return model.QueueEvent(kind, int.from_bytes(data[5:8], "big") if len(data) >= 8 else None)
    if kind is model.EventKind.FAULT and eqe.BY_TYPE.get(code) is eqe.QP_EQE:
        return model.QueueEvent(
            kind, eqe.QP_EQE.get(data, "qpn") if len(data) >= eqe.EQE_SIZE else None
        )
    if kind not in (model.EventKind.COMMAND, model.EventKind.PORT) or len(data) < eqe.EQE_SIZE:
        return model.QueueEvent(kind)
    if kind is model.EventKind.COMMAND:
        return model.QueueEvent(kind, eqe.CMD_EQE.get(data, "token"))
    port = eqe.BY_TYPE[code].get(data, "port")
    if code != EventType.PORT_CHANGE:
        return model.QueueEvent(kind, port)
    return model.QueueEvent(kind, port, "active" if data[3] == eqe.PORT_ACTIVE else "down")


def _pair_context(data: model.Data) -> model.PairContext | None:
    at, get = contexts.QPC_MAILBOX_OFFSET, contexts.QPC.get
    if len(data) < at + _SIZES_END:
        return None
    send, stride, receive = (
        get(data, f"log_{name}", at) for name in ("sq_size", "sq_stride", "rq_size")
    )
    flushes = get(data, "service", at) in _FLUSHING
    return model.PairContext(flushes, 1 << send, 1 << (stride + _LOG_UNIT), 1 << receive)


def _completion_ring(data: model.Data) -> model.RingContext | None:
    if len(data) < contexts.CQC_SIZE:
        return None
    size, record, eqn = (
        contexts.CQC.get(data, name) for name in ("log_size", "doorbell_record", "eqn")
    )
    return model.RingContext(1 << size, record, eqn)


def _event_ring(data: model.Data) -> model.RingContext | None:
    if len(data) < _EVENT_SIZE_END:
        return None
    return model.RingContext(1 << contexts.EQC.get(data, "log_size"))


def _consumed(event: Event) -> int | None:
    role, _ = _written(event)
    size = 8 if role is Role.CQ_ARM else 4
    return int.from_bytes(event.data[-3:], "big") if len(event.data) == size else None


def _polled(bar: int, address: int, data: model.Data) -> bool:
    """A driver waits for its command, reads the clock, and looks whether there was an error."""
    if bar:
        return False
    if address == bar0.CATAS_OFFSET:
        return not any(data)
    return address == bar0.CLOCK_OFFSET or bar0.HCR.find(address) is not None


def _status_words(syndrome: int) -> str:
    """Return what verbs call a status, with the card's own name beside it where that differs."""
    first, *others = model.names_of(cqe.NAMES_OF_STATUSES, syndrome)
    own = others if syndrome in cqe.NAMES_OF_STATUSES else [hex(syndrome)]
    return f"{first} ({own[0]})" if own else first


def _operation(data: model.Data) -> str:
    entry = data[-cqe.CQE_SIZE :]
    if len(entry) < cqe.CQE_SIZE or _failure(entry) is not None:
        return ""
    if not cqe.CQE.get(entry, "is_send"):
        code = cqe.CQE.get(entry, "opcode")
        return RECEIVE_WRITE if code == cqe.RecvOpcode.RDMA_WRITE_WITH_IMM else RECEIVE
    return model.named(SendOpcode, cqe.CQE.get(entry, "opcode"))


def _cqe_words(event: Event) -> str:
    data = event.data[-cqe.CQE_SIZE :]  # the second half of a large entry
    if len(data) < cqe.CQE_SIZE:
        return f"CQE of CQ {event.obj:#x}"
    get = cqe.CQE.get
    head = f"CQE cqn={event.obj:#x} qpn={get(data, 'qpn'):#x}"
    send, opcode = get(data, "is_send"), get(data, "opcode")
    if opcode == cqe.OPCODE_ERROR:
        syndrome, vendor = (
            cqe.ERROR_CQE.get(data, name) for name in ("syndrome", "vendor_syndrome")
        )
        side = "send" if send else "receive"
        return f"{head} {side} ERROR {_status_words(syndrome)} vendor_err={vendor:#x}"
    if send:
        return f"{head} send {model.named(SendOpcode, opcode)} wqe={get(data, 'wqe_index')}"
    return f"{head} receive {model.named(cqe.RecvOpcode, opcode)} bytes={get(data, 'byte_count')}"


def _eqe_words(event: Event) -> str:
    if len(event.data) < eqe.EQE_SIZE:
        return f"EQE of EQ {event.obj}"
    kind = eqe.EQE.get(event.data, "type")
    table = eqe.BY_TYPE.get(kind, eqe.EQE)
    own = [
        f"{item.name}={table.get(event.data, item.name):#x}"
        for item in table
        if item.name not in ("type", "subtype", "owner") and not item.raw
    ]
    return f"EQE eqn={event.obj} {model.named(EventType, kind)} {' '.join(own)}".strip()


def _mailbox(event: Event) -> str:
    side = "input" if event.what == What.MAILBOX_IN else "output"
    return f"{side} mailbox of {name_of(event.obj)}"


def _record(event: Event) -> str:
    value = int.from_bytes(event.data[:4], "big")
    return f"doorbell record of {event.obj:#x} = {value:#x}"


def _send_words(event: Event) -> str:
    datagram = event.what is What.UD_WQE
    return (
        f"WQE qpn={event.obj:#x} {entries.send_entry(event.data, event.length, datagram=datagram)}"
    )


def _parts(event: Event) -> Iterable[tuple[fields.Struct, int]]:
    data = event.data
    if event.what in (What.SQ_WQE, What.UD_WQE):
        return entries.send_parts(data, datagram=event.what is What.UD_WQE)
    if event.what in (What.RQ_WQE, What.SRQ_WQE):
        return entries.receive_parts(data, 16 if event.what is What.SRQ_WQE else 0)
    if event.what is What.CQE and len(data) >= cqe.CQE_SIZE:
        table = cqe.CQE if _failure(data) is None else cqe.ERROR_CQE
        return ((table, len(data) - cqe.CQE_SIZE),)
    if event.what is What.EQE and len(data) >= eqe.EQE_SIZE:
        return ((eqe.BY_TYPE.get(data[1], eqe.EQE), 0),)
    return ()


MLX4 = model.DeviceModel(
    model.DeviceKind.ADAPTER,
    "",
    "HCA",
    {0: (*bar0.BLOCKS, *flash.BLOCKS), 2: uar.BLOCKS},
    config=BOARD_REGISTERS,
    words={
        What.SQ_WQE: _send_words,
        What.UD_WQE: _send_words,
        What.RQ_WQE: lambda event: f"RQ WQE qpn={event.obj:#x} {entries.receive_entry(event.data)}",
        What.SRQ_WQE: lambda event: (
            f"SRQ WQE srqn={event.obj:#x} {entries.receive_entry(event.data[16:])}"
        ),
        What.CQE: _cqe_words,
        What.EQE: _eqe_words,
        What.DOORBELL_RECORD: _record,
        What.MAILBOX_IN: _mailbox,
        What.MAILBOX_OUT: _mailbox,
    },
    parts=_parts,
    register_words=_register_words,
    adapter=model.Adapter(
        line=LINE,
        head=HEAD_BYTES,
        page=uar.blueflame_page,
        send_head=_send_head,
        completed=partial(_done, send=True),
        failure=_failure,
        statuses=cqe.NAMES_OF_STATUSES,
        operation=_operation,
        flushed=cqe.CompletionStatus.WR_FLUSH_ERR,
        event=_event,
        written=_written,
        command=model.CommandRegister(
            bar=0,
            base=bar0.HCR_BASE,
            end=bar0.HCR_BASE + bar0.HCR.size,
            token_end=bar0.HCR.at("token") + 4,
            go=bar0.HCR_GO,
            event=bar0.HCR_EVENT,
            name=lambda control: name_of(control & _OPCODE),
            names=tuple(Opcode.__members__),
            statuses=tuple(commands.Status.__members__),
            nouns={
                name: noun for name in Opcode.__members__ for noun in _NOUNS if name.endswith(noun)
            },
        ),
        states=tuple(state.name for state in (contexts.QpState.RST, *commands.OWNED)),
        transitions={
            name_of(opcode): (tuple(state.name for state in each.sources), each.target.name)
            for opcode, each in commands.TRANSITIONS.items()
        },
        failures=tuple((one.name, other.name) for one, other in commands.FAILURES),
        flushing=contexts.QpState.SQER.name,
        failed=contexts.QpState.ERR.name,
        described=name_of(Opcode.RST2INIT_QP),
        context=_pair_context,
        made={
            Opcode.SW2HW_CQ.name: (Role.CQE, _completion_ring),
            Opcode.SW2HW_EQ.name: (Role.EQE, _event_ring),
        },
        resized={(Opcode.MODIFY_CQ.name, 0): (Role.CQE, _completion_ring)},
        received=partial(_done, send=False),
        consumed=_consumed,
        reset=(0, bar0.RESET_OFFSET),
        polled=_polled,
    ),
)
