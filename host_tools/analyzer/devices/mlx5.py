"""The row of ConnectX-5 adapters: registers, doorbells, commands, entries of queues."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout import fields
from bluebridge.device.layout.blueflame import HEAD_BYTES, LINE
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.ibverbs import RECEIVE, RECEIVE_WRITE
from bluebridge.device.layout.mlx5 import cqe, event_queues, init_segment, queue_pairs, wqe
from bluebridge.device.layout.mlx5.commands import (
    BLOCK_BYTES,
    ENTRY,
    INLINE_BYTES,
    INPUT,
    MAILBOX,
    OBJECTS,
    OUTPUT,
    Delivery,
    Opcode,
    Status,
    name_of,
)
from bluebridge.device.layout.mlx5.contexts import (
    CQC,
    MKC,
    QUEUE_CHANGES,
    RQC,
    SQC,
    WQ,
    WQ_OFFSET,
    QueueState,
)
from bluebridge.device.layout.mlx5.event_queues import EQC, EQE, EQE_BYTES, EventType, layout_of
from bluebridge.device.layout.mlx5.objects import CONTEXT, RESIZE, ROCE_ADDRESS
from bluebridge.device.layout.mlx5.queue_pairs import QpState, Receives
from bluebridge.device.layout.pci import VENDOR_REGISTERS
from bluebridge.host_tools.analyzer.devices import mlx5_entries, model
from bluebridge.host_tools.analyzer.transaction import OK, Role

_NOUNS: Final = {
    "eqn": "EQ", "cqn": "CQ", "qpn": "QP", "srqn": "SRQ", "mkey": "MKEY", "rqn": "RQ", "sqn": "SQ",
    "tisn": "TIS", "tirn": "TIR", "rqtn": "RQT",
}  # fmt: skip
"""Objects of commands by the word for their number."""
_EVENTS: dict[int, model.EventKind] = {
    EventType.COMPLETION: model.EventKind.COMPLETION,
    EventType.COMMAND: model.EventKind.COMMAND,
    EventType.PORT_CHANGE: model.EventKind.PORT,
    **dict.fromkeys(
        (
            EventType.CQ_ERROR, EventType.WQ_CATASTROPHIC, EventType.INTERNAL_ERROR,
            EventType.WQ_INVALID_REQUEST, EventType.WQ_ACCESS_ERROR, EventType.SRQ_CATASTROPHIC,
        ),
        model.EventKind.FAULT,
    ),
}  # fmt: skip
_WORD: Final = 4
_NUMBER: Final = MAILBOX.field("number").offset
"""Place of a mailbox's number in its chain, if the log has so much of it."""
_CONTEXTS: Final[dict[int, tuple[fields.Struct, int]]] = {
    Opcode.CREATE_CQ: (CQC, 0),
    Opcode.MODIFY_CQ: (CQC, 0),
    Opcode.CREATE_MKEY: (MKC, 0),
    Opcode.CREATE_XRC_SRQ: (queue_pairs.XRC_SRQC, 0),
    Opcode.CREATE_RMP: (WQ, WQ_OFFSET + CONTEXT - INLINE_BYTES),
    Opcode.SET_ROCE_ADDRESS: (ROCE_ADDRESS, 0),
    **dict.fromkeys(
        (Opcode.CREATE_QP, *queue_pairs.TRANSITIONS),
        (queue_pairs.QPC, queue_pairs.QP_CONTEXT - INLINE_BYTES),
    ),
}
"""The context in the first mailbox of a command, and its place there."""
_RESPONSES: Final = frozenset(each for each in cqe.CqeOpcode if each.name.startswith("RESPONSE"))
_SIZES_END: Final = 0x0C
"""The bytes of a queue pair's context that have its service and the sizes of its rings."""
_KIND_END: Final = 0xB0
"""Those that say as well where its receives are."""
_LAST_STATES: Final = (QpState.RST, QpState.ERR)
_ANY_STATE: Final = tuple(state.name for state in QpState)
_TRANSITIONS: Final = {
    **{
        name_of(opcode): (tuple(state.name for state in each.sources), each.target.name)
        for opcode, each in queue_pairs.TRANSITIONS.items()
    },
    name_of(Opcode.TOERR_QP): (_ANY_STATE[1:], QpState.ERR.name),
    name_of(Opcode.TORST_QP): (_ANY_STATE, QpState.RST.name),
    name_of(Opcode.DESTROY_QP): (_ANY_STATE, QpState.RST.name),
}
_EVERY_SLOT: Final = 0xFFFFFFFF


def _written(event: Event) -> tuple[Role, int]:
    """Return the role of a store: a doorbell of a queue, which it names, or another register."""
    offset, data = event.address, event.data
    if offset < init_segment.UAR_AREA:
        return Role.REGISTER_WRITE, 0
    register = offset % init_segment.UAR_BYTES
    if register in (init_segment.EQ_ARM, init_segment.EQ_UPDATE):
        return Role.EQ_ARM, data[0] if data else 0
    if register == init_segment.CQ_DOORBELL and len(data) == 2 * _WORD:
        return Role.CQ_ARM, int.from_bytes(data[5:8], "big")
    if register < init_segment.SEND_DOORBELL:
        return Role.REGISTER_WRITE, 0
    end = register % init_segment.BLUEFLAME_BUFFER + len(data)
    if end > HEAD_BYTES:
        return Role.BLUEFLAME, 0
    if len(data) == HEAD_BYTES:
        return Role.DOORBELL, int.from_bytes(data[4:7], "big")
    return Role.REGISTER_WRITE, 0


def _consumed(event: Event) -> int | None:
    role, _ = _written(event)
    if role is Role.EQ_ARM and len(event.data) == _WORD:
        return int.from_bytes(event.data[1:4], "big")
    if role is Role.CQ_ARM:
        return int.from_bytes(event.data[1:4], "big")
    return None


def _send_head(data: model.Data) -> model.SendHead:
    get = wqe.SEND_DOORBELL.get  # the head of an entry is what its doorbell is
    return model.SendHead(
        model.named(wqe.SendOpcode, get(data, "opcode")),
        get(data, "ds") * wqe.SEGMENT_BYTES,
        get(data, "index"),
        get(data, "qpn"),
    )


def _failure(data: model.Data) -> int | None:
    if len(data) < cqe.CQE_SIZE or cqe.CQE.get(data, "opcode") not in mlx5_entries.ERRORS:
        return None
    return cqe.ERROR_CQE.get(data, "syndrome")


def _completed(data: model.Data) -> model.Completed | None:
    sends = (cqe.CqeOpcode.REQUEST, cqe.CqeOpcode.REQUEST_ERROR)
    if len(data) < cqe.CQE_SIZE or cqe.CQE.get(data, "opcode") not in sends:
        return None
    syndrome = _failure(data)
    status = OK if syndrome is None else model.names_of(cqe.NAMES_OF_STATUSES, syndrome)[0]
    return model.Completed(cqe.CQE.get(data, "qpn"), cqe.CQE.get(data, "wqe_counter"), status)


def _queue_state(table: fields.Struct, data: model.Data) -> str | None:
    """Read the first mailbox of MODIFY_SQ or MODIFY_RQ."""
    at = CONTEXT - INLINE_BYTES
    return None if len(data) < at + _WORD else model.named(QueueState, table.get(data, "state", at))


def _received(data: model.Data) -> model.Completed | None:
    if len(data) < cqe.CQE_SIZE or cqe.CQE.get(data, "opcode") not in _RESPONSES:
        return None
    syndrome = _failure(data)
    status = OK if syndrome is None else model.names_of(cqe.NAMES_OF_STATUSES, syndrome)[0]
    return model.Completed(cqe.CQE.get(data, "qpn"), cqe.CQE.get(data, "wqe_counter"), status)


def _pair_context(data: model.Data) -> model.PairContext | None:
    """Read the first mailbox of CREATE_QP."""
    at, get = queue_pairs.QP_CONTEXT - INLINE_BYTES, queue_pairs.QPC.get
    if len(data) < at + _SIZES_END:
        return None
    sends = 0 if get(data, "no_sq", at) else 1 << get(data, "log_sq_size", at)
    own = get(data, "rq_type", at) == Receives.OWN if len(data) >= at + _KIND_END else True
    receives = 1 << get(data, "log_rq_size", at) if own else 0
    flushes = get(data, "service", at) in (queue_pairs.Service.UC, queue_pairs.Service.UD)
    return model.PairContext(flushes, sends, wqe.BLOCK_BYTES, receives)


def _operation(data: model.Data) -> str:
    if len(data) < cqe.CQE_SIZE or _failure(data) is not None:
        return ""
    code = cqe.CQE.get(data, "opcode")
    if code == cqe.CqeOpcode.REQUEST:
        return model.named(wqe.SendOpcode, cqe.CQE.get(data, "wqe_opcode"))
    return RECEIVE_WRITE if code == cqe.CqeOpcode.RESPONSE_WRITE_IMM else RECEIVE


def _event(data: model.Data) -> model.QueueEvent:
    code = data[1] if len(data) > 1 else -1
    kind = _EVENTS.get(code, model.EventKind.OTHER)
    if len(data) < EQE_BYTES:
        return model.QueueEvent(kind)
    if kind is model.EventKind.COMPLETION:
        return model.QueueEvent(kind, event_queues.COMPLETION_EQE.get(data, "cqn"))
    if kind is model.EventKind.COMMAND:
        return model.QueueEvent(kind)
    if kind is model.EventKind.PORT:
        active = data[3] == event_queues.PORT_ACTIVE
        port = event_queues.PORT_EQE.get(data, "port")
        return model.QueueEvent(kind, port, "active" if active else "down")
    if layout_of(data) is event_queues.QUEUE_EQE:
        return model.QueueEvent(kind, event_queues.QUEUE_EQE.get(data, "number"))
    return model.QueueEvent(kind)


def _completion_ring(data: model.Data) -> model.RingContext | None:
    """Read the first mailbox of CREATE_CQ, in which the context comes first."""
    if len(data) < CQC.size:
        return None
    size, record, eqn = (CQC.get(data, name) for name in ("log_size", "doorbell_record", "eqn"))
    return model.RingContext(1 << size, record & ~7, eqn & 0xFF)


def _event_ring(data: model.Data) -> model.RingContext | None:
    """Read the first mailbox of CREATE_EQ, in which the context comes first."""
    if len(data) < EQC.field("log_size").offset + _WORD:
        return None
    return model.RingContext(1 << EQC.get(data, "log_size"))


def _polled(bar: int, address: int, data: model.Data) -> bool:
    """A driver reads the clock, and looks every two seconds whether there was an error."""
    if address == init_segment.QUEUE_LOW:
        return True
    return init_segment.HEALTH <= address < init_segment.HEALTH + 64 or (
        init_segment.TIMER_HIGH <= address <= init_segment.HEALTH_COUNTER
    )


def _entry_words(event: Event) -> str:
    """Describe an entry of the command queue: read whole, given back from its output on."""
    data = event.data
    if len(data) >= ENTRY.size:
        head = ENTRY.get_raw(data, "input")
        length, output = (ENTRY.get(data, f"{side}_length") for side in ("input", "output"))
        name = name_of(INPUT.get(head, "opcode"))
        return f"command entry {event.obj}: {name} input={length} output={output}"
    if event.length == 1 and data:
        delivery = model.named(Delivery, data[0] >> 1)
        return f"command entry {event.obj} is done, delivery {delivery}"
    if len(data) >= 8:
        status = model.named(Status, OUTPUT.get(data, "status"))
        return f"command entry {event.obj}: {status} syndrome={OUTPUT.get(data, 'syndrome'):#x}"
    return f"command entry {event.obj}"


def _mailbox(event: Event) -> str:
    side = "input" if event.what == What.MAILBOX_IN else "output"
    part = "" if event.length in (MAILBOX.size, BLOCK_BYTES) else f", {event.length} bytes"
    words = _context_words(event) if side == "input" else ""
    return f"{side} mailbox of {name_of(event.obj)}{part}" + (words and f": {words}")


def _context_words(event: Event) -> str:
    """Return the fields that are not zero of a context, of which the log has the beginning.

    Only the first mailbox of a chain has one.
    """
    table, start = _CONTEXTS.get(event.obj, (None, 0))
    number = event.data[_NUMBER : _NUMBER + _WORD]
    if table is None or (len(number) == _WORD and any(number)):
        return ""
    return table.words(event.data, start)


def _eqe_words(event: Event) -> str:
    if len(event.data) < EQE_BYTES:
        return f"EQE of EQ {event.obj}"
    kind = EQE.get(event.data, "type")
    layout = layout_of(event.data)
    own = [
        f"{item.name}={layout.get(event.data, item.name):#x}"
        for item in layout
        if item.name not in ("type", "owner", "signature") and not item.raw
    ]
    return f"EQE eqn={event.obj} {model.named(EventType, kind)} {' '.join(own)}".strip()


def _parts(event: Event) -> Iterable[tuple[fields.Struct, int]]:
    data = event.data
    if event.what is What.COMMAND_ENTRY and len(data) >= ENTRY.size:
        return ((ENTRY, 0),)
    if event.what is What.EQE and len(data) >= EQE_BYTES:
        return ((layout_of(data), 0),)
    if event.what in (What.SQ_WQE, What.UD_WQE):
        return mlx5_entries.message_parts(data, datagram=event.what is What.UD_WQE)
    if event.what is What.FRAME_WQE:
        return mlx5_entries.send_parts(data)
    if event.what is What.RQ_WQE:
        return mlx5_entries.receive_parts(data)
    if event.what is What.PAGE_LIST:
        return mlx5_entries.list_parts(data)
    return mlx5_entries.completion_parts(data) if event.what is What.CQE else ()


MLX5: Final = model.DeviceModel(
    model.DeviceKind.ADAPTER,
    "",
    "HCA",
    {0: init_segment.BLOCKS},
    config=VENDOR_REGISTERS,
    words={
        What.COMMAND_ENTRY: _entry_words,
        What.MAILBOX_IN: _mailbox,
        What.MAILBOX_OUT: _mailbox,
        What.EQE: _eqe_words,
        What.FRAME_WQE: mlx5_entries.send_words,
        What.SQ_WQE: mlx5_entries.message_words,
        What.UD_WQE: mlx5_entries.message_words,
        What.SRQ_WQE: mlx5_entries.shared_words,
        What.RQ_WQE: mlx5_entries.receive_words,
        What.CQE: mlx5_entries.completion_words,
        What.PAGE_LIST: mlx5_entries.list_words,
        What.DOORBELL_RECORD: mlx5_entries.record_words,
    },
    parts=_parts,
    adapter=model.Adapter(
        line=LINE,
        head=HEAD_BYTES,
        page=lambda offset: offset // init_segment.UAR_BYTES,
        send_head=_send_head,
        completed=_completed,
        failure=_failure,
        statuses=cqe.NAMES_OF_STATUSES,
        operation=_operation,
        flushed=cqe.Syndrome.WR_FLUSH_ERR,
        event=_event,
        written=_written,
        command=model.CommandRegister(
            bar=0,
            base=init_segment.DOORBELL,
            end=init_segment.DOORBELL + _WORD,
            token_end=-1,
            go=_EVERY_SLOT,
            event=_EVERY_SLOT,
            name=lambda slots: "command",
            names=tuple(name_of(opcode) for opcode in Opcode),
            statuses=tuple(Status.__members__),
            nouns={
                name_of(opcode): _NOUNS[place.word]
                for opcode, place in OBJECTS.items()
                if place.word in _NOUNS
            },
        ),
        states=tuple(state.name for state in QpState),
        transitions=_TRANSITIONS,
        failures=(
            (QpState.RTS.name, QpState.SQER.name),
            *((state.name, QpState.ERR.name) for state in QpState if state not in _LAST_STATES),
        ),
        flushing=QpState.SQER.name,
        failed=QpState.ERR.name,
        described=name_of(Opcode.CREATE_QP),
        context=_pair_context,
        made={
            name_of(Opcode.CREATE_EQ): (Role.EQE, _event_ring),
            name_of(Opcode.CREATE_CQ): (Role.CQE, _completion_ring),
        },
        resized={(Opcode.MODIFY_CQ.name, RESIZE): (Role.CQE, _completion_ring)},
        received=_received,
        consumed=_consumed,
        reset=(0, init_segment.BAR0_SIZE),
        frame_queues=("SQ", "RQ"),
        frame_states=model.FrameStates(
            states=tuple(state.name for state in QueueState),
            edges=tuple((one.name, other.name) for one, other in QUEUE_CHANGES),
            failed=QueueState.ERR.name,
            made=(name_of(Opcode.CREATE_SQ), name_of(Opcode.CREATE_RQ)),
            gone=(name_of(Opcode.DESTROY_SQ), name_of(Opcode.DESTROY_RQ)),
            changed={
                name_of(Opcode.MODIFY_SQ): partial(_queue_state, SQC),
                name_of(Opcode.MODIFY_RQ): partial(_queue_state, RQC),
            },
        ),
        polled=_polled,
    ),
)
