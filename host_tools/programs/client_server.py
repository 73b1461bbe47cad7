"""Runs a server in guest a and its client in guest b."""

from __future__ import annotations

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.programs.readiness import listening, wait_until


def run(pair: Pair, server: str, client: str, port: int, seconds: float) -> str:
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
