"""RTRS over NTRDMA: it does not know that it is not the HCA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from bluebridge.guest.protocols.rtrs.engine.settings import Timing
from bluebridge.guest.protocols.rtrs.transport.interfaces import Interfaces
from bluebridge.guest.providers import open_ntrdma
from tests.models.verbs.rtrs_contract import (
    CLIENT,
    LIKELY,
    PATH,
    SECONDS,
    SERVER,
    RtrsContract,
    interfaces_on,
    rtrs_client,
)
from tests.unit.ntrdma.tcp.programs import program, success, until_said
from tests.unit.ntrdma.tcp.test_verbs import joined

QUICK = Timing(heartbeat=0.2, missed_heartbeats=4, connect=3.0, backoff=0.05, establish=1.0)


@contextmanager
def joined_interfaces() -> Iterator[tuple[Interfaces, Interfaces]]:
    """The server's interfaces and the client's, on two devices of this process."""
    with ExitStack() as stack:
        a, b = joined()
        stack.callback(a.close)
        stack.callback(b.close)
        yield interfaces_on(stack, {SERVER: a}), interfaces_on(stack, {CLIENT: b})


class TestNtrdma(RtrsContract):
    """Over TCP."""

    @pytest.fixture
    def ends(self) -> Iterator[tuple[Interfaces, Interfaces]]:
        """The server's interfaces and the client's."""
        with joined_interfaces() as both:
            yield both


def test_two_processes(free_port: int) -> None:
    """As users start them; the client writes, reads back and compares."""
    place = f"127.0.0.1:{free_port}"
    client_words = "client", "--path", SERVER, "--count", "200", "--length", "60000"
    server_words = "server", "--interface", f"ntrdma:s:{place}={SERVER}/24"
    with program("protocols.rtrs", *server_words) as server:
        until_said(server, "serving")
        with program(
            "protocols.rtrs", *client_words, "--interface", f"ntrdma:c:{place}={CLIENT}/24"
        ) as client:
            assert "400 requests, 0 errors, 0 wrong" in success(client)
        server.terminate()
        success(server)


def test_a_server_that_is_killed_under_traffic(free_port: int) -> None:
    """Its path dies at once, not by its heartbeat, and comes back with the next server."""
    words = "server", "--interface", f"ntrdma:c:127.0.0.1:{free_port}={SERVER}/24"
    settings = replace(LIKELY, timing=replace(QUICK, heartbeat=SECONDS))
    with ExitStack() as stack:
        device = stack.enter_context(open_ntrdma(f"s:127.0.0.1:{free_port}", wait=False))
        interfaces = interfaces_on(stack, {CLIENT: device})
        pair = stack.enter_context(rtrs_client(interfaces, settings))
        with program("protocols.rtrs", *words) as first:
            until_said(first, "serving")
            assert pair.open([PATH]) == 0
            traffic = pair.start_traffic(count=100_000, length=4096, depth=8)
            assert pair.loop.run_until(lambda: traffic.totals.requests > 100, SECONDS)
            first.kill()
            assert pair.loop.run_until(lambda: pair.states() != ["connected"], SECONDS)
        with program("protocols.rtrs", *words) as second:
            assert pair.loop.run_until(lambda: pair.states() == ["connected"], SECONDS)
            assert (traffic.totals.mismatches, pair.client_user.links) == (0, [False, True])
            totals = pair.finish(pair.start_traffic(count=50, length=4096, depth=8))
            assert (totals.errors, totals.mismatches) == (0, 0)
            pair.close_client()
            second.terminate()
            success(second)
