"""States of a krping thread, numbered as in its log lines (krping.c: enum test_state)."""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    """The states of a krping thread.

    CONNECTED and those behind it are passed through once per ping; ERROR ends every wait.
    """

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
    """Return the server's state after an advertisement: of the source, later of the sink."""
    if state <= State.CONNECTED or state is State.RDMA_WRITE_COMPLETE:
        return State.RDMA_READ_ADV
    return State.RDMA_WRITE_ADV


def after_go_ahead(state: State) -> State:
    """Return the client's state after a go-ahead: the source was read, later the sink written."""
    if state is State.RDMA_READ_ADV:
        return State.RDMA_WRITE_ADV
    return State.RDMA_WRITE_COMPLETE
