"""Events and parameters of connections, with the numbers of include/rdma/rdma_cm.h."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class CmError(OSError):
    """A call of the connection manager failed: `errno`, and a line that says why."""


class EventType(IntEnum):
    """The types of events, numbered as enum rdma_cm_event_type."""

    ADDR_RESOLVED = 0
    ADDR_ERROR = 1
    ROUTE_RESOLVED = 2
    ROUTE_ERROR = 3
    CONNECT_REQUEST = 4
    CONNECT_RESPONSE = 5
    CONNECT_ERROR = 6
    UNREACHABLE = 7
    REJECTED = 8
    ESTABLISHED = 9
    DISCONNECTED = 10
    DEVICE_REMOVAL = 11
    MULTICAST_JOIN = 12
    MULTICAST_ERROR = 13
    ADDR_CHANGE = 14
    TIMEWAIT_EXIT = 15


@dataclass(frozen=True, slots=True)
class ConnParam:
    """The parameters on which both sides of a connection agree (struct rdma_conn_param).

    `private_data` goes to the peer: at most 56 bytes with connect, 196 with accept, 148 with
    reject. `retry_count` and `rnr_retry_count` are 0..7, 7 RNR retries meaning endless.
    """

    private_data: bytes = b""
    responder_resources: int = 1
    initiator_depth: int = 1
    flow_control: int = 0
    retry_count: int = 7
    rnr_retry_count: int = 7
