"""The fields of REQ and REP, filled as the kernel's rdma_cm fills them."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.net.cm import IP_HEADER_SIZE, service_id
from bluebridge.guest.protocols.cm.events import ConnParam
from bluebridge.guest.protocols.cm.messages import Message, ip_header
from bluebridge.guest.protocols.cm.path_qp import ACK_TIMEOUT_CODE, HOP_LIMIT, MTU_1024, Rtr, Rts
from bluebridge.guest.protocols.cm.transport import LocalPort, Peer

CM_RESPONSE_TIMEOUT = 20  # 4.3 s, core/cma.c: CMA_CM_RESPONSE_TIMEOUT
CM_MAX_RETRIES = 15  # core/cma.c: CMA_MAX_CM_RETRIES
MAX_RETRY_COUNT = 7
DEFAULT_PKEY = 0xFFFF


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of a connection: the peer's IP address and port, its GID and MAC."""

    address: str
    port: int
    peer: Peer


def request_fields(
    local: LocalPort, own_port: int, to: Destination, qpn: int, psn: int, param: ConnParam
) -> dict[str, Value]:
    """Return the fields of a REQ as core/cma.c: cma_connect_ib and core/cm.c: cm_format_req.

    `own_port` is the port number on this side, `qpn` and `psn` are those of this side's queue pair.
    """
    header = ip_header(local.ip, own_port, to.address)
    return {
        "service_id": service_id(to.port),
        "local_ca_guid": local.guid,
        "local_qpn": qpn,
        "responder_resources": param.responder_resources,
        "initiator_depth": param.initiator_depth,
        "remote_cm_timeout": CM_RESPONSE_TIMEOUT,
        "local_cm_timeout": CM_RESPONSE_TIMEOUT,
        "flow_control": param.flow_control,
        "starting_psn": psn,
        "retry_count": min(param.retry_count, MAX_RETRY_COUNT),
        "rnr_retry_count": param.rnr_retry_count,
        "pkey": DEFAULT_PKEY,
        "path_mtu": MTU_1024,
        "max_cm_retries": CM_MAX_RETRIES,
        "primary_local_gid": local.gid,
        "primary_remote_gid": to.peer.gid,
        "primary_traffic_class": to.peer.traffic_class,
        "primary_hop_limit": HOP_LIMIT,
        "primary_ack_timeout": ACK_TIMEOUT_CODE,
        "private_data": header + param.private_data,
    }


def reply_fields(guid: int, qpn: int, psn: int, param: ConnParam) -> dict[str, Value]:
    """Return the fields of a REP as core/cma.c: cma_accept_ib and core/cm.c: cm_format_rep."""
    return {
        "local_qpn": qpn,
        "starting_psn": psn,
        "responder_resources": param.responder_resources,
        "initiator_depth": param.initiator_depth,
        "flow_control": param.flow_control,
        "rnr_retry_count": param.rnr_retry_count,
        "local_ca_guid": guid,
        "private_data": param.private_data,
    }


def request_param(request: Message) -> ConnParam:
    """Return the parameters that a REQ asks for, its private data without the addresses."""
    return ConnParam(
        request.raw("private_data")[IP_HEADER_SIZE:],
        request["initiator_depth"],
        request["responder_resources"],
        request["flow_control"],
        request["retry_count"],
        request["rnr_retry_count"],
    )


def rtr_of(
    message: Message, param: ConnParam, psn: int, peer: Peer, gid_index: int, mtu: int
) -> Rtr:
    """Return the attributes for RTR out of a REQ or REP; `psn` is the first that this side expects.

    Each side names the PSN it expects first, which the other one then starts with
    (core/cm.c: ib_send_cm_req and ib_send_cm_rep keep theirs as rq_psn, cm_req_handler and
    cm_rep_handler the peer's as sq_psn).
    """
    depth = min(param.responder_resources, message["initiator_depth"])
    return Rtr(message["local_qpn"], psn, peer, gid_index, mtu, depth)


def rts_of_request(request: Message, param: ConnParam) -> Rts:
    """Return the attributes for RTS out of a REQ, on the passive side."""
    return Rts(
        request["starting_psn"],
        request["primary_ack_timeout"],
        request["retry_count"],
        request["rnr_retry_count"],
        min(param.initiator_depth, request["responder_resources"]),
    )


def rts_of_reply(reply: Message, param: ConnParam) -> Rts:
    """Return the attributes for RTS out of a REP, on the active side."""
    return Rts(
        reply["starting_psn"],
        ACK_TIMEOUT_CODE,
        min(param.retry_count, MAX_RETRY_COUNT),
        reply["rnr_retry_count"],
        min(param.initiator_depth, reply["responder_resources"]),
    )
