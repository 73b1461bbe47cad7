"""The items of queue pairs, other queues and memory regions, with the names of `rdma res show`."""

from __future__ import annotations

from bluebridge.device.layout.mlx4 import contexts, uar
from bluebridge.device.layout.net.roce import MTU_BYTES
from bluebridge.host_tools.show.text import Item, Kind, Row, gid_text

CONNECTED = ("RC", "UC", "XRC")
_MIGRATION = ("ARMED", "REARM", "RESERVED", "MIGRATED")
_ARMED = {
    0: "no", uar.CQ_ARM_SOLICITED: "solicited", uar.CQ_ARM_NEXT: "next", uar.CQ_ARM_COUNT: "count"
}  # fmt: skip
_EQ_STATES = {
    contexts.EQ_STATE_ARMED: "armed",
    contexts.EQ_STATE_FIRED: "fired",
    contexts.EQ_STATE_ALWAYS_ARMED: "always armed",
}


def queue_pair(row: Row) -> Item:
    """Return the item of a queue pair."""
    context = bytes.fromhex(row["context"])

    def get(name: str) -> int:
        return contexts.QPC.get(context, name)

    item: Item = {
        "lqpn": row["lqpn"],
        "rqpn": get("remote_qpn") if row["type"] in CONNECTED else None,
        "type": row["type"],
        "state": row["state"],
        "path-mtu": MTU_BYTES.get(get("mtu")),
        "rq-psn": get("next_recv_psn"),
        "sq-psn": get("next_send_psn"),
        "unacked": row.get("unacked"),
        "pdn": get("pd"),
        "scqn": get("cqn_send"),
        "rcqn": get("cqn_recv"),
        "srqn": get("srqn") if get("use_srq") else None,
        **_rings(row),
        "timeout": get("pri_ack_timeout"),
        "retry-cnt": get("retry_count"),
        "rnr-retry": get("rnr_retry"),
        "access": [
            name.upper() for name in ("remote_read", "remote_write", "remote_atomic") if get(name)
        ],
        "path-mig-state": _MIGRATION[get("pm_state")] if row["type"] in CONNECTED else None,
        "port": get("pri_port") + 1,
        **_path(context),
        "min-rnr-timer": get("min_rnr_timer"),
        "max-rd-atomic": 1 << get("sra_max"),
        "max-dest-rd-atomic": 1 << get("rra_max"),
        "msg-max": 1 << get("msg_max"),
        "msn": get("msn"),
        "qkey": get("qkey"),
        "xrcdn": get("xrcd"),
        "uar": get("uar"),
        "counter": get("pri_counter_index"),
        "fast-reg": bool(get("fast_reg_enable")),
        "rq-record": get("doorbell_record") if "rq" in row else None,
    }
    names = ("oldest_unacked", "retries", "rnr_retries", "waits_to_retry")
    told = names if "unacked" in row else ()
    return item | {name.replace("_", "-"): row[name] for name in told}


def _rings(row: Row) -> Item:
    """Return the entries executed and posted; software's own indices are in its memory only."""
    sends, receives = row.get("sq", {}), row.get("rq", {})
    return {
        "sq-size": sends.get("size"),
        "sq-next": sends.get("next"),
        "sq-rung": sends.get("rung"),
        "rq-size": receives.get("size"),
        "rq-posted": receives.get("producer"),
        "rq-taken": receives.get("consumer"),
    }


def _path(context: bytes) -> Item:
    """Return where the queue pair's messages go; a datagram has the address in its request."""
    get, dmac = contexts.QPC.get, contexts.QPC.get_raw(context, "pri_dmac")
    return {
        "gid": gid_text(contexts.QPC.get_raw(context, "pri_rgid")),
        "sgid-index": get(context, "pri_mgid_index"),
        "dmac": dmac.hex(":") if any(dmac) else None,
        "lid": get(context, "pri_rlid"),
        "sl": get(context, "pri_sched_queue") >> 2 & 0xF,
        "vlan-index": get(context, "pri_vlan_index") if get(context, "pri_vlan_valid") else None,
        "pkey-index": get(context, "pri_pkey_index"),
        "hop-limit": get(context, "pri_hop_limit"),
        "roce-mode": get(context, "roce_mode"),
    }


def completion_queue(row: Row) -> Item:
    """Return the item of a completion queue."""
    context = bytes.fromhex(row["context"])
    fields = ("eqn", "uar", "period", "max_count", "doorbell_record")
    return {
        **_ring(row, "cqn", "cqe"),
        "armed": _ARMED[row["armed"]],
        "state": "broken" if row["broken"] else "valid",
        **{name.replace("_", "-"): contexts.CQC.get(context, name) for name in fields},
        "overrun-ignore": bool(contexts.CQC.get(context, "overrun_ignore")),
        "timestamps": bool(contexts.CQC.get(context, "timestamps")),
        "last-notified": contexts.CQC.get(context, "last_notified"),
    }


def _ring(row: Row, number: str, size: str) -> Item:
    found = {number: row[number], size: row["size"]}
    return {**found, "producer": row["producer"], "consumer": row["consumer"]}


def shared_receive_queue(row: Row) -> Item:
    """Return the item of a shared receive queue."""
    context = bytes.fromhex(row["context"])
    return {
        "srqn": row["srqn"],
        "pdn": contexts.SRQC.get(context, "pd"),
        "cqn": contexts.SRQC.get(context, "cqn"),
        "size": row["size"],
        "posted": row["producer"],
        "taken": row["consumer"],
        "next-entry": row["next_entry"],
        "limit": contexts.SRQC.get(context, "limit_watermark"),
        "xrcdn": contexts.SRQC.get(context, "xrcd"),
        "doorbell-record": contexts.SRQC.get(context, "doorbell_record"),
    }


def event_queue(row: Row) -> Item:
    """Return the item of an event queue."""
    context = bytes.fromhex(row["context"])
    return {
        **_ring(row, "eqn", "eqe"),
        "vector": contexts.EQC.get(context, "vector"),
        "state": _EQ_STATES.get(contexts.EQC.get(context, "state"), "armed"),
        "backlog": row["backlog"],
        "overflowed": row["overflowed"],
        "overrun-ignore": bool(contexts.EQC.get(context, "overrun_ignore")),
    }


QP = Kind(
    "qp", "queue pairs", "a QPN", queue_pair, ("lqpn",),
    (
        "lqpn", "rqpn", "type", "state", "path-mtu", "rq-psn", "sq-psn", "unacked", "pdn", "scqn",
        "rcqn", "srqn", "sq-size", "sq-next", "rq-size", "rq-posted", "rq-taken", "timeout",
        "retry-cnt", "rnr-retry", "retries", "access", "gid", "port",
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


_RIGHTS = ("local_read", "local_write", "remote_read", "remote_write", "remote_atomic")
_BIND = "bind_enable"
_ADDRESS_BITS = 64
_ALL_MEMORY = (1 << _ADDRESS_BITS) - 1


def region(row: Row) -> Item:
    """Return the item of an entry of the protection table, whose key is both lkey and rkey."""
    everything, shift = row["length"] == _ALL_MEMORY, row["page_shift"]
    return {
        "rkey": row["lkey"],
        "lkey": None if row["window"] else row["lkey"],
        "type": _type(row),
        "state": _state(row),
        "iova": row["iova"],
        "mrlen": "all memory" if everything else row["length"],
        "pdn": row["pd"],
        "access": _access(row["rights"]),
        "page-size": None if row["physical"] or shift >= _ADDRESS_BITS else 1 << shift,
        "pieces": row["pieces"],
        "windows": row["windows"],
        "window-of": row["parent"],
        "lqpn": row["qpn"] or None,
        "mtt-addr": contexts.MPT.get(bytes.fromhex(row["entry"]), "mtt_addr"),
    }


def _type(row: Row) -> str:
    if row["window"]:
        return "MW type 2" if row["second_type"] else "MW type 1"
    if row["fast"]:
        return "MR fast registration"
    return "MR physical" if row["physical"] else "MR"


def _state(row: Row) -> str:
    if row["window"]:
        return "bound" if row["parent"] is not None else "unbound"
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
