"""Describes the events of one log, with the messages of RTRS and of RNBD in words.

A queue pair is of RTRS if it is one of those whose CM REQ has the magic number of RTRS in its
private data.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.device.buslog.reader import Event, Filter, LogError, LogReader
from bluebridge.device.buslog.wire import read_message
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.ib.mad import DATA_OFFSET, MAD, MAD_SIZE, MgmtClass
from bluebridge.device.layout.net import rnbd, rtrs
from bluebridge.device.layout.net.cm import IP_HEADER_SIZE, REJ, REP, REQ, CmAttribute
from bluebridge.device.layout.net.rnbd import AccessMode, IoFlag, Operation
from bluebridge.device.layout.net.roce import GSI_QPN, Op
from bluebridge.device.layout.net.rtrs import CONN_REQ, CONN_RSP, MAGIC, ImmediateType, MessageType
from bluebridge.device.packets.message import WireMessage
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.devices.model import named

_SHOWN = 4  # bytes of an UUID

_UUIDS = ("sess_uuid", "paths_uuid")

_WITH_IMMEDIATE = (Op.SEND_IMM, Op.WRITE_IMM)

_LONG_READ = rtrs.RDMA_READ.size + rtrs.SG_DESC.size
_TAILS = (
    (MessageType.WRITE, rtrs.RDMA_WRITE.size),
    (MessageType.READ, _LONG_READ),
    (MessageType.READ, rtrs.RDMA_READ.size),
)
"""Length in bytes of the message at the end of the written data, by type of request."""

_WIRE = frozenset((Kind.WIRE,))


@dataclass(eq=False)
class Connection:
    """A connection of a path; `queue_depth` is 0 until the server has announced it."""

    queue_depth: int = 0


@dataclass(frozen=True)
class Side:
    """A queue pair of a connection, at the client or the server, from `since` on."""

    since: float
    connection: Connection
    client: bool


class Connections:
    """The connections in the MADs of a log, which `observe` takes in order."""

    def __init__(self) -> None:
        self._asked: dict[tuple[bytes, int], tuple[float, Connection]] = {}
        """Requests by the sender's address and the requester's communication id."""
        self._sides: dict[tuple[str, int], list[Side]] = {}

    def __bool__(self) -> bool:
        return bool(self._sides)

    def observe(self, device: str, time: float, message: WireMessage) -> None:
        """Take a datagram to queue pair 1, sent by `device`."""
        attribute, mad = _cm(message), message.payload
        if attribute == CmAttribute.REQ:
            asked = _private(REQ.get_raw(mad, "private_data", DATA_OFFSET)[IP_HEADER_SIZE:])
            if CONN_REQ.get(asked, "magic") == MAGIC:
                connection = Connection()
                number = REQ.get(mad, "local_comm_id", DATA_OFFSET)
                self._asked[message.source, number] = time, connection
                self._add(device, REQ.get(mad, "local_qpn", DATA_OFFSET), time, connection, True)
        elif attribute == CmAttribute.REP:
            number = REP.get(mad, "remote_comm_id", DATA_OFFSET)
            found = self._asked.get((message.destination, number))
            answer = _private(REP.get_raw(mad, "private_data", DATA_OFFSET))
            if found is not None and CONN_RSP.get(answer, "magic") == MAGIC:
                since, connection = found
                connection.queue_depth = CONN_RSP.get(answer, "queue_depth")
                qpn = REP.get(mad, "local_qpn", DATA_OFFSET)
                self._add(device, qpn, since, connection, False)

    def _add(
        self, device: str, qpn: int, since: float, connection: Connection, client: bool
    ) -> None:
        sides = self._sides.setdefault((device, qpn), [])
        if not sides or sides[-1].since < since:  # a MAD that was sent again changes nothing
            sides.append(Side(since, connection, client))

    def find(self, device: str, qpn: int, time: float) -> Side | None:
        """Return the side of a device's queue pair at that time; None if it is not of RTRS."""
        sides = self._sides.get((device, qpn), [])
        place = bisect_right(sides, time, key=lambda side: side.since)
        return sides[place - 1] if place else None


def cm_text(message: WireMessage) -> str:
    """Describe the private data of a CM message of RTRS; empty for any other."""
    attribute, mad = _cm(message), message.payload
    if attribute == CmAttribute.REQ:
        return _request_text(
            _private(REQ.get_raw(mad, "private_data", DATA_OFFSET)[IP_HEADER_SIZE:])
        )
    if attribute == CmAttribute.REP:
        return _answer_text(_private(REP.get_raw(mad, "private_data", DATA_OFFSET)))
    if attribute == CmAttribute.REJ:
        return _answer_text(_private(REJ.get_raw(mad, "private_data", DATA_OFFSET)))
    return ""


def _request_text(data: bytes) -> str:
    get = CONN_REQ.get
    if get(data, "magic") != MAGIC:
        return ""
    path, session = (CONN_REQ.get_raw(data, name)[:_SHOWN].hex() for name in _UUIDS)
    first = " first" if get(data, "first_conn") else ""
    return (
        f"RTRS connection {get(data, 'cid')} of {get(data, 'cid_num')} "
        f"recon={get(data, 'recon_cnt')} path={path} session={session}{first}"
    )


def _answer_text(data: bytes) -> str:
    get = CONN_RSP.get
    if get(data, "magic") != MAGIC:
        return ""
    error = get(data, "errno")
    if error:
        return f"RTRS refuses errno={error - (error >> 15 << 16)}"
    return f"RTRS queue_depth={get(data, 'queue_depth')} max_io_size={get(data, 'max_io_size')}"


def _cm(message: WireMessage) -> int:
    """Return the number of a message of the connection manager, 0 for other messages."""
    mad = message.payload
    if len(mad) < MAD_SIZE or MAD.get(mad, "mgmt_class") != MgmtClass.CM:
        return 0
    return MAD.get(mad, "attr_id")


def _private(data: bytes) -> bytes:
    return bytes(data[: CONN_REQ.size]).ljust(CONN_REQ.size, b"\0")


def request_text(message: WireMessage, side: Side) -> str:
    """Describe a request of one side of a connection; empty for an unknown one."""
    if message.op is Op.SEND:
        return _info(message)
    if message.op is Op.SEND_INV:
        return f"RTRS invalidates rkey={message.immediate:#x}"
    if message.op in _WITH_IMMEDIATE:
        return _immediate(message, side)
    if message.op is Op.WRITE and not side.client:
        answers = message.complete and message.length % 512  # data come in whole sectors
        return f"RTRS read data{user_message_text(message.payload) if answers else ''}"
    return ""


def _info(message: WireMessage) -> str:
    data = message.payload
    if len(data) >= 2 and message.length == rtrs.INFO_REQ.size and not _type_of(data):
        name = data[2 : 2 + rtrs.NAME_BYTES].partition(b"\0")[0].decode(errors="replace")
        return f"RTRS INFO_REQ session={name!r}"
    if len(data) >= rtrs.INFO_RSP.size and _type_of(data) == MessageType.INFO_RSP:
        return f"RTRS INFO_RSP pieces={rtrs.INFO_RSP.get(data, 'sg_cnt')}{_first_piece(data)}"
    return ""


def _first_piece(data: bytes) -> str:
    at, table = rtrs.INFO_RSP.size, rtrs.SG_DESC
    if len(data) < at + table.size:
        return ""
    address, key, length = (table.get(data, name, at) for name in ("addr", "key", "len"))
    return f" first={address:#x}+{length} rkey={key:#x}"


def _type_of(data: bytes) -> int:
    return int.from_bytes(data[:2], "little")


def _immediate(message: WireMessage, side: Side) -> str:
    kind = message.immediate >> rtrs.PAYLOAD_BITS
    payload = message.immediate & rtrs.PAYLOAD_MASK
    if kind == ImmediateType.IO_REQ and side.client:
        return _io_request(message, payload, side)
    if kind in (ImmediateType.IO_RSP, ImmediateType.IO_RSP_W_INV) and not side.client:
        chunk, error = rtrs.parse_response(payload)
        return f"RTRS {ImmediateType(kind).name} chunk={chunk} errno={-error}{_new_key(message)}"
    if kind in (ImmediateType.HB_MSG, ImmediateType.HB_ACK):
        return f"RTRS {ImmediateType(kind).name}"
    return f"RTRS unknown immediate {message.immediate:#x}"


def _new_key(message: WireMessage) -> str:
    data, table = message.payload, rtrs.RKEY_RSP
    if len(data) < table.size or _type_of(data) != MessageType.RKEY_RSP:
        return ""
    return f", RKEY_RSP chunk={table.get(data, 'buf_id')} rkey={table.get(data, 'rkey'):#x}"


def _io_request(message: WireMessage, payload: int, side: Side) -> str:
    bits = rtrs.offset_bits(side.connection.queue_depth)
    chunk, offset = payload >> bits, payload & ((1 << bits) - 1)
    if not side.connection.queue_depth:  # nobody has said where the chunk's number begins
        return f"RTRS IO_REQ payload={payload:#x}"
    return f"RTRS IO_REQ chunk={chunk} offset={offset}{_request_message(message)}"


def _request_message(message: WireMessage) -> str:
    """Describe the RTRS message at the end of the written data, and the user's before it."""
    data = message.payload
    if len(data) < message.length:
        return f" (message not kept){_opening(message)}"
    for kind, tail in _TAILS:
        at = len(data) - tail
        if at < 0 or _type_of(data[at:]) != kind:
            continue
        length = int.from_bytes(data[at + 2 : at + 4], "little")
        pieces = rtrs.RDMA_READ.get(data[at:], "sg_cnt") if kind is MessageType.READ else 0
        whole = pieces * rtrs.SG_DESC.size + rtrs.RDMA_READ.size
        if length <= at and (kind is MessageType.WRITE or tail == whole):
            user = user_message_text(data[at - length : at])
            return f" {kind.name} user={length}{user}"
    return " (no message)"


def _opening(message: WireMessage) -> str:
    """Describe RNBD's message to open a device, of which the log lacks zeros at the end only."""
    if message.length - _LONG_READ != rnbd.OPEN.size:
        return ""
    return user_message_text(message.payload.ljust(rnbd.OPEN.size, b"\0"))


def user_message_text(data: bytes) -> str:
    """Return `, RNBD ...` for a message of RNBD, only the type if it is cut; else empty."""
    kind = int.from_bytes(data[:2], "little")
    form = _FORMS.get(kind)
    if form is None or len(data) < rnbd.HEADER.size:
        return ""
    table, text = form
    name = rnbd.MessageType(kind).name
    return f", RNBD {name}{text(data)}" if len(data) >= table.size else f", RNBD {name} (short)"


def _session(data: bytes) -> str:
    return f" version={rnbd.SESS_INFO.get(data, 'ver')}"


def _open(data: bytes) -> str:
    name = rnbd.OPEN.get_raw(data, "dev_name").partition(b"\0")[0].decode(errors="replace")
    return f" {name!r} {named(AccessMode, rnbd.OPEN.get(data, 'access_mode'))}"


def _opened(data: bytes) -> str:
    get = rnbd.OPEN_RSP.get
    return (
        f" device={get(data, 'device_id')} sectors={get(data, 'nsectors')} "
        f"block={get(data, 'logical_block_size')}"
    )


def _io(data: bytes) -> str:
    get = rnbd.IO.get
    word = get(data, "rw")
    flags = "".join(f" {flag.name}" for flag in IoFlag if word & flag)
    return (
        f" {named(Operation, word & rnbd.OPERATION_MASK)}{flags} device={get(data, 'device_id')} "
        f"sector={get(data, 'sector')} bytes={get(data, 'bi_size')}"
    )


_FORMS: dict[int, tuple[Struct, Callable[[bytes], str]]] = {
    rnbd.MessageType.SESS_INFO: (rnbd.SESS_INFO, _session),
    rnbd.MessageType.SESS_INFO_RSP: (rnbd.SESS_INFO, _session),
    rnbd.MessageType.OPEN: (rnbd.OPEN, _open),
    rnbd.MessageType.OPEN_RSP: (rnbd.OPEN_RSP, _opened),
    rnbd.MessageType.IO: (rnbd.IO, _io),
    rnbd.MessageType.CLOSE: (
        rnbd.CLOSE,
        lambda data: f" device={rnbd.CLOSE.get(data, 'device_id')}",
    ),
}


def decoder_of(reader: LogReader, wanted: Filter) -> Callable[[Event], str]:
    """Make a function that describes each wanted event in one line.

    Before that it searches the whole log for connections, since one may have been set up before the
    first wanted event, or on another device. Raises `LogError` on damaged segments.
    """
    if wanted.kinds is not None and not wanted.kinds & _WIRE:
        return decode
    connections = _connections(reader, wanted.until)
    if not connections:
        return decode
    return lambda event: _described(event, connections)


def decoder_of_live(reader: LogReader) -> Callable[[Event], str]:
    """Make a function that describes events of a log that is being written, in their order.

    Connections are those of the log up to now and those that the events themselves set up.
    """
    connections = _connections(reader)

    def described(event: Event) -> str:
        if event.kind == Kind.WIRE:
            _observe(event, connections)
        return _described(event, connections)

    return described


def _connections(reader: LogReader, until: float | None = None) -> Connections:
    connections = Connections()
    for event in reader.events(Filter(_WIRE, until=until)):
        _observe(event, connections)
    return connections


def _observe(event: Event, connections: Connections) -> None:
    """Take a connection from a datagram that sets one up; other events are ignored."""
    if event.what == What.DATAGRAM and event.obj == GSI_QPN:
        with contextlib.suppress(LogError):  # shown as damaged in its place
            connections.observe(event.device, event.time, read_message(event))


def _described(event: Event, connections: Connections) -> str:
    text = decode(event)
    if event.kind != Kind.WIRE:
        return text
    try:
        more = _more(event, connections)
    except LogError:
        return text
    return f"{text} {more}" if more else text


def _more(event: Event, connections: Connections) -> str:
    if event.what == What.DATAGRAM and event.obj == GSI_QPN:
        return cm_text(read_message(event))
    if event.what != What.REQUEST:
        return ""
    message = read_message(event)
    side = connections.find(event.device, message.source_qpn, event.time)
    return "" if side is None else request_text(message, side)
