"""The connections of RTRS in a log.

They are those whose CM REQ has the magic number of RTRS in its private data.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from bluebridge.device.layout.ib.mad import DATA_OFFSET, MAD, MAD_SIZE, MgmtClass
from bluebridge.device.layout.net.cm import IP_HEADER_SIZE, REJ, REP, REQ, CmAttribute
from bluebridge.device.layout.net.rtrs import CONN_REQ, CONN_RSP, MAGIC
from bluebridge.device.packets.message import WireMessage

_SHOWN = 4  # bytes of an UUID


@dataclass(eq=False)
class Connection:
    """A connection of a path; `queue_depth` is 0 until the server has announced it."""

    cid: int
    queue_depth: int = 0


@dataclass(frozen=True)
class Side:
    """A queue pair of a connection, at the client or the server, from `since` on."""

    since: float
    connection: Connection
    client: bool


class Connections:
    """Finds connections in the MADs of a log: `observe` takes each in order.

    `find` then returns the connection side of a queue pair.
    """

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
                connection = Connection(CONN_REQ.get(asked, "cid"))
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


_UUIDS = ("sess_uuid", "paths_uuid")


def _cm(message: WireMessage) -> int:
    """Return the number of a message of the connection manager, 0 for other messages."""
    mad = message.payload
    if len(mad) < MAD_SIZE or MAD.get(mad, "mgmt_class") != MgmtClass.CM:
        return 0
    return MAD.get(mad, "attr_id")


def _private(data: bytes) -> bytes:
    return bytes(data[: CONN_REQ.size]).ljust(CONN_REQ.size, b"\0")
