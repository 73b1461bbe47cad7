"""The fields of REQ and REP, filled as the kernel's rdma_cm fills them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.net.cm import service_id
from bluebridge.guest.cm.events import ConnParam
from bluebridge.guest.cm.messages import ip_header
from bluebridge.guest.cm.path import ACK_TIMEOUT_CODE, HOP_LIMIT, MTU_1024
from bluebridge.guest.cm.transport import Peer

if TYPE_CHECKING:
    from bluebridge.guest.cm.identifier import CmId

CM_RESPONSE_TIMEOUT = 20  # 4.3 s, core/cma.c: CMA_CM_RESPONSE_TIMEOUT
CM_MAX_RETRIES = 15  # core/cma.c: CMA_MAX_CM_RETRIES
MAX_RETRY_COUNT = 7
DEFAULT_PKEY = 0xFFFF


def request_fields(
    cm_id: CmId, qpn: int, psn: int, peer: Peer, param: ConnParam
) -> dict[str, Value]:
    """The REQ, as core/cma.c: cma_connect_ib and core/cm.c: cm_format_req fill it."""
    local = cm_id.manager.port
    header = ip_header(local.ip, cm_id.port, cm_id.peer_address)
    return {
        "service_id": service_id(cm_id.peer_port),
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
        "primary_remote_gid": peer.gid,
        "primary_hop_limit": HOP_LIMIT,
        "primary_ack_timeout": ACK_TIMEOUT_CODE,
        "private_data": header + param.private_data,
    }


def reply_fields(guid: int, qpn: int, psn: int, param: ConnParam) -> dict[str, Value]:
    """The REP, as core/cma.c: cma_accept_ib and core/cm.c: cm_format_rep fill it."""
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
