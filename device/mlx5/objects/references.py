"""The objects that a command names besides the one that it makes or changes, by its input.

A queue pair names its domain, its completion queues and its shared receive queue, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import iter_unpack
from typing import Final

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx5.commands import INPUT, Opcode, Place, Status
from bluebridge.device.layout.mlx5.contexts import (
    MKC,
    RQC,
    RQTC,
    SQC,
    TIRC,
    TISC,
    WQ,
    WQ_OFFSET,
    Dispatch,
)
from bluebridge.device.layout.mlx5.objects import CONTEXT, ENTRY
from bluebridge.device.layout.mlx5.queue_pairs import QP_CONTEXT, QPC, XRC_SRQC, Receives, Service
from bluebridge.device.layout.mlx5.steering import (
    CREATE_FLOW_TABLE,
    DESTINATION,
    MODIFY_FLOW_TABLE,
    SET_FLOW_ENTRY,
    Destination,
)
from bluebridge.device.mlx5.settings.refused import Refused

Object = tuple[str, int]
"""The word for a kind of object, as `Place` has it, and a number."""
CQ, SRQ, PD, XRCD, RQ, RQT, TIS = "cqn", "srqn", "pd", "xrcd", "rqn", "rqtn", "tisn"
DOMAIN, TIR, TABLE, FLOW_COUNTER = "td", "tirn", "table", "flow_counter"
_ALIASES: Final = {"rmpn": SRQ}
"""Shared receive queues of both kinds have numbers of one range."""
_OPTIONAL: Final = (XRCD, TIS, TABLE, DOMAIN)
"""The kinds of object of which number 0 is none, as in TIRs of DPDK for what it drops."""
_DESTINATIONS: Final = {int(Destination.FLOW_TABLE): TABLE, int(Destination.TIR): TIR}
_POOL: Final = (PD, WQ, "pd", CONTEXT + WQ_OFFSET)


def object_at(place: Place, data: bytes) -> Object:
    """Return the object that a command is about."""
    return _ALIASES.get(place.word, place.word), place.number(data)


def _of_pair(data: bytes) -> list[Object]:
    def get(name: str) -> int:
        return QPC.get(data, name, QP_CONTEXT)

    found, kind = [(PD, get("pd"))], get("rq_type")
    if not get("no_sq"):
        found.append((CQ, get("cqn_send")))
    if kind != Receives.NONE:
        found.append((CQ, get("cqn_recv")))
    if kind == Receives.SHARED:
        found.append((SRQ, get("srqn")))
    if get("service") == Service.XRC:
        found.append((XRCD, get("xrcd")))
    return found


def _of_tir(data: bytes) -> list[Object]:
    direct = TIRC.get(data, "dispatch", CONTEXT) == Dispatch.DIRECT
    word, name = (RQ, "rqn") if direct else (RQT, "rqtn")
    domain = TIRC.get(data, "transport_domain", CONTEXT)
    return [(word, TIRC.get(data, name, CONTEXT)), (DOMAIN, domain)]


def listed_queues(data: bytes) -> list[int]:
    """Return the numbers of the RQs in a command on an RQT; raises `Refused` (BAD_INP_LEN)."""
    count = RQTC.get(data, "actual_size", CONTEXT)
    listed = data[CONTEXT + RQTC.size :][: 4 * count]
    if len(listed) < 4 * count:
        raise Refused(Status.BAD_INP_LEN, f"{len(listed) // 4} queues of {count}")
    return [number & 0xFFFFFF for (number,) in iter_unpack(">I", listed)]


def _of_entry(data: bytes) -> list[Object]:
    """Return what a flow entry names: tables and TIRs, then counters."""
    count = SET_FLOW_ENTRY.get(data, "destinations")
    most = count + SET_FLOW_ENTRY.get(data, "counters")
    found: list[Object] = []
    for at in range(SET_FLOW_ENTRY.size, min(SET_FLOW_ENTRY.size + 8 * most, len(data) - 7), 8):
        word: str | None = FLOW_COUNTER
        if at < SET_FLOW_ENTRY.size + 8 * count:
            word = _DESTINATIONS.get(DESTINATION.get(data, "type", at))
        if word is not None:
            found.append((word, DESTINATION.get(data, "number", at)))
    return found


def _fields(*rows: tuple[str, Struct, str, int]) -> Callable[[bytes], list[Object]]:
    """Return the reader of inputs that name objects: the kind, a table, its field, the offset."""
    return lambda data: [(word, table.get(data, name, at)) for word, table, name, at in rows]


_READERS: Final[dict[int, Callable[[bytes], list[Object]]]] = {
    Opcode.CREATE_QP: _of_pair,
    Opcode.CREATE_SQ: _fields(_POOL, (CQ, SQC, "cqn", CONTEXT), (TIS, SQC, "tisn", CONTEXT)),
    Opcode.CREATE_RQ: _fields(_POOL, (CQ, RQC, "cqn", CONTEXT)),
    Opcode.CREATE_RMP: _fields(_POOL),
    Opcode.CREATE_MKEY: _fields((PD, MKC, "pd", ENTRY)),
    Opcode.CREATE_XRC_SRQ: _fields(
        (PD, XRC_SRQC, "pd", ENTRY), (CQ, XRC_SRQC, "cqn", ENTRY), (XRCD, XRC_SRQC, "xrcd", ENTRY)
    ),
    Opcode.CREATE_TIS: _fields((DOMAIN, TISC, "transport_domain", CONTEXT)),
    Opcode.CREATE_TIR: _of_tir,
    Opcode.CREATE_RQT: lambda data: [(RQ, number) for number in listed_queues(data)],
    Opcode.MODIFY_RQT: lambda data: [(RQ, number) for number in listed_queues(data)],
    Opcode.CREATE_FLOW_TABLE: _fields((TABLE, CREATE_FLOW_TABLE, "miss_table", 0)),
    Opcode.MODIFY_FLOW_TABLE: _fields((TABLE, MODIFY_FLOW_TABLE, "miss_table", 0)),
    Opcode.SET_FLOW_TABLE_ENTRY: _of_entry,
}


def referred(data: bytes) -> list[Object]:
    """Return what a command names of other objects, by its input; raises `Refused`."""
    reader = _READERS.get(INPUT.get(data, "opcode"))
    found = [] if reader is None else reader(data)
    return [each for each in found if each[1] or each[0] not in _OPTIONAL]
