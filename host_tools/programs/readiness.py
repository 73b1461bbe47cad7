"""Shell conditions that hold in a guest when a server is ready, and the ports of servers."""

from __future__ import annotations

IPERF_PORT = 5201
VERBS_PORT = 18515
"""The TCP port on which programs of libibverbs and perftest exchange queue pair numbers."""
CM_LISTENING = "rdma resource show cm_id | grep -q LISTEN"
"""A shell condition that holds when something listens through rdma_cm."""


def listening(port: int) -> str:
    """Return a shell condition that holds when something listens at the TCP port."""
    return f"ss -Hltn 'sport = :{port}' | grep -q ."


def wait_until(condition: str) -> str:
    """Return a shell line that ends when `condition` holds."""
    return f"until {condition}; do sleep 0.05; done"
