"""States of a krping thread, numbered as in its log lines (krping.c: enum test_state)."""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    """CONNECTED and what follows is passed through once per ping; ERROR ends every wait."""

    IDLE = 1
    CONNECT_REQUEST = 2
    ADDR_RESOLVED = 3
    ROUTE_RESOLVED = 4
    CONNECTED = 5
    RDMA_READ_ADV = 6
    RDMA_READ_COMPLETE = 7
    RDMA_WRITE_ADV = 8
    RDMA_WRITE_COMPLETE = 9
    ERROR = 10


def after_advertisement(state: State) -> State:
    """Server: the client advertised its source buffer, or, later in a ping, its sink."""
    if state <= State.CONNECTED or state is State.RDMA_WRITE_COMPLETE:
        return State.RDMA_READ_ADV
    return State.RDMA_WRITE_ADV


def after_go_ahead(state: State) -> State:
    """Client: the server has read the source buffer, or, later in a ping, written the sink."""
    if state is State.RDMA_READ_ADV:
        return State.RDMA_WRITE_ADV
    return State.RDMA_WRITE_COMPLETE
