"""The items of queue pairs, other queues and memory regions, with the names of `rdma res show`."""

from __future__ import annotations

from functools import partial

from bluebridge.device.layout.mlx4 import contexts, uar
from bluebridge.device.layout.mlx4.contexts import QPC
from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.host_tools.show.text import Item, Kind, Row, fields, gid_text, told

CONNECTED = ("RC", "UC", "XRC")
_QP_FIELDS = """
    rq-psn=next_recv_psn sq-psn=next_send_psn pdn=pd scqn=cqn_send rcqn=cqn_recv
    timeout=pri_ack_timeout retry-cnt=retry_count rnr-retry min-rnr-timer
    sgid-index=pri_mgid_index lid=pri_rlid pkey-index=pri_pkey_index hop-limit=pri_hop_limit
    roce-mode msn qkey xrcdn=xrcd uar counter=pri_counter_index fast-reg=fast_reg_enable
"""
_MIGRATION = ("ARMED", "REARM", "RESERVED", "MIGRATED")
_ARMED = {
    0: "no", uar.CQ_ARM_SOLICITED: "solicited", uar.CQ_ARM_NEXT: "next", uar.CQ_ARM_COUNT: "count"
}  # fmt: skip
_EQ_STATES = {
    contexts.EQ_STATE_ARMED: "armed",
    contexts.EQ_STATE_FIRED: "fired",
    contexts.EQ_STATE_ALWAYS_ARMED: "always armed",
}

_RIGHTS = ("local_read", "local_write", "remote_read", "remote_write", "remote_atomic")
_BIND = "bind_enable"
_OWN_NUMBERS = frozenset(("number", "cqn", "doorbell-record", "tirn", "rqtn", "table", "miss"))
_ADDRESS_BITS = 64
_ALL_MEMORY = (1 << _ADDRESS_BITS) - 1

SQ = Kind(
    "sq", "send queues", "an SQN", told, ("number",),
    ("number", "state", "size", "posted", "done", "cqn", "pdn"), _OWN_NUMBERS,
)  # fmt: skip
RQ = Kind(
    "rq", "receive queues", "an RQN", told, ("number",),
    ("number", "state", "size", "posted", "done", "cqn", "pdn", "strip-vlan"), _OWN_NUMBERS,
)  # fmt: skip
TIR = Kind(
    "tir", "transport interfaces receive", "a TIRN", told, ("tirn",),
    ("tirn", "type", "rqns", "loopback"), _OWN_NUMBERS,
)  # fmt: skip
RQT = Kind(
    "rqt", "tables of receive queues", "an RQTN", told, ("rqtn",),
    ("rqtn", "size", "rqns"), _OWN_NUMBERS,
)  # fmt: skip
FT = Kind(
    "ft", "flow tables", "a table's number", told, ("table",),
    ("table", "root", "level", "size", "groups", "entries", "miss", "to"), _OWN_NUMBERS,
)  # fmt: skip
OBJECTS = Kind("objects", "objects", "", told, ())


def queue_pair(row: Row) -> Item:
    """Return the item of a queue pair; a datagram has the peer's address in its request.

    One without a context is told in these words.
    """
    if "context" not in row:
        return told(row) | {"gid": gid_text(bytes.fromhex(row["gid"]))}
    context, connected = bytes.fromhex(row["context"]), row["type"] in CONNECTED
    get, dmac = partial(QPC.get, context), QPC.get_raw(context, "pri_dmac")
    rights = ("remote_read", "remote_write", "remote_atomic")
    return {
        **told(row),
        "rqpn": get("remote_qpn") if connected else None,
        "path-mtu": MTU_BYTES.get(get("mtu")),
        **fields(QPC, context, _QP_FIELDS),
        "srqn": get("srqn") if get("use_srq") else None,
        "access": [name.upper() for name in rights if get(name)],
        "path-mig-state": _MIGRATION[get("pm_state")] if connected else None,
        "port": get("pri_port") + 1,
        "gid": gid_text(QPC.get_raw(context, "pri_rgid")),
        "dmac": dmac.hex(":") if any(dmac) else None,
        "sl": get("pri_sched_queue") >> 2 & 0xF,
        "vlan-index": get("pri_vlan_index") if get("pri_vlan_valid") else None,
        "max-rd-atomic": 1 << get("sra_max"),
        "max-dest-rd-atomic": 1 << get("rra_max"),
        "msg-max": 1 << get("msg_max"),
        "rq-record": get("doorbell_record") if "rq-size" in row else None,
    }


def completion_queue(row: Row) -> Item:
    """Return the item of a completion queue; one without a context is told in these words."""
    if "context" not in row:
        return told(row)
    names = "eqn uar period max-count doorbell-record overrun-ignore timestamps last-notified"
    return {
        **told(row, "function context broken"),
        "armed": _ARMED[row["armed"]],
        "state": "broken" if row["broken"] else "valid",
        **fields(contexts.CQC, bytes.fromhex(row["context"]), names),
    }


def shared_receive_queue(row: Row) -> Item:
    """Return the item of a shared receive queue; one without a context is told in these words."""
    if "context" not in row:
        return told(row)
    names = "pdn=pd cqn limit=limit_watermark xrcdn=xrcd doorbell-record"
    return told(row) | fields(contexts.SRQC, bytes.fromhex(row["context"]), names)


def event_queue(row: Row) -> Item:
    """Return the item of an event queue; one without a context is told in these words."""
    if "context" not in row:
        return told(row)
    found = fields(contexts.EQC, bytes.fromhex(row["context"]), "vector state overrun-ignore")
    return told(row) | found | {"state": _EQ_STATES.get(found["state"], "armed")}


QP = Kind(
    "qp", "queue pairs", "a QPN", queue_pair, ("lqpn",),
    (
        "lqpn", "rqpn", "type", "state", "path-mtu", "rq-psn", "sq-psn", "unacked", "pdn", "scqn",
        "rcqn", "srqn", "sq-size", "sq-next", "sq-posted", "rq-size", "rq-posted",
        "rq-taken", "timeout", "retry-cnt", "rnr-retry", "retries", "access", "gid", "port",
    ),
    frozenset(
        ("lqpn", "rqpn", "rq-psn", "sq-psn", "scqn", "rcqn", "srqn", "qkey", "rq-record")
    ),
)  # fmt: skip
CQ = Kind(
    "cq", "completion queues", "a CQN", completion_queue, ("cqn",),
    ("cqn", "cqe", "producer", "consumer", "armed", "state", "eqn", "uar", "period", "max-count"),
    frozenset(("cqn", "doorbell-record")),
)  # fmt: skip
SRQ = Kind(
    "srq", "shared receive queues", "an SRQN", shared_receive_queue, ("srqn",),
    ("srqn", "pdn", "cqn", "size", "posted", "taken", "next-entry", "limit"),
    frozenset(("srqn", "cqn", "doorbell-record")),
)  # fmt: skip
EQ = Kind(
    "eq", "event queues", "an EQN", event_queue, ("eqn",),
    ("eqn", "eqe", "producer", "consumer", "vector", "state", "backlog", "overflowed"),
)  # fmt: skip


def region(row: Row) -> Item:
    """Return the item of a key, which is both lkey and rkey; of mlx4 with its entry of the MPT."""
    everything, shift = row["length"] == _ALL_MEMORY, row["page_shift"]
    return {
        "rkey": row["lkey"],
        "lkey": None if row["window"] else row["lkey"],
        "type": _type(row),
        "state": _state(row),
        **{name: row[name] for name in ("iova", "pieces", "windows", "window-of")},
        "mrlen": "all memory" if everything else row["length"],
        "pdn": row["pd"],
        "access": _access(row["rights"]),
        "page-size": None if row["physical"] or shift >= _ADDRESS_BITS else 1 << shift,
        "lqpn": row["qpn"] or None,
        **(fields(contexts.MPT, bytes.fromhex(row["entry"]), "mtt-addr") if row["entry"] else {}),
    }


def _type(row: Row) -> str:
    if row["window"]:
        return "MW type 2" if row["second_type"] else "MW type 1"
    if row["fast"]:
        return "MR fast registration"
    return "MR physical" if row["physical"] else "MR"


def _state(row: Row) -> str:
    if row["window"]:
        return "bound" if row["window-of"] is not None else "unbound"
    return "free" if row["free"] else "valid"


def _access(rights: int) -> list[str]:
    word = rights.to_bytes(4, "big")
    names = [name.upper() for name in _RIGHTS if contexts.MPT.get(word, name)]
    return [*names, "MW_BIND"] if contexts.MPT.get(word, _BIND) else names


MR = Kind(
    "mr", "memory regions", "an lkey or rkey", region, ("rkey",),
    ("rkey", "lkey", "type", "state", "iova", "mrlen", "pdn", "access", "page-size", "windows"),
    frozenset(("rkey", "lkey", "iova", "window-of", "lqpn", "mtt-addr")),
)  # fmt: skip
