"""Servers in guest a: the conditions that hold when one is ready, its port, a client in guest b."""

from __future__ import annotations

from bluebridge.host_tools.lab.pair import Pair


def serve_and_run(pair: Pair, server: str, client: str, port: int, seconds: float) -> str:
    """Run shell line `server` in a and, once it listens at `port`, `client` in b.

    Each may take `seconds`. Returns the client's output. Raises `LabError` when one fails; the
    server is killed then.
    """
    serving = pair.a.agent.start(server, seconds)
    try:
        pair.a.run(wait_until(listening(port)))
        done = pair.b.run(client, timeout=seconds)
    except BaseException:
        serving.kill()
        raise
    serving.wait()
    return done.text


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
