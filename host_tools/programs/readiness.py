"""Shell conditions in a guest that say that a server is ready, and ports of servers."""

from __future__ import annotations

IPERF_PORT = 5201
VERBS_PORT = 18515
"""The TCP port on which programs of libibverbs and perftest exchange queue pair numbers."""
CM_LISTENING = "rdma resource show cm_id | grep -q LISTEN"
"""True when something listens through rdma_cm."""


def listening(port: int) -> str:
    """True when something listens at the TCP port."""
    return f"ss -Hltn 'sport = :{port}' | grep -q ."


def wait_until(condition: str) -> str:
    """A shell line that ends when `condition` is true."""
    return f"until {condition}; do sleep 0.05; done"
