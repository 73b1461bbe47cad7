"""krping and the connection manager over NTRDMA: neither knows that it is not the HCA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from ipaddress import IPv6Address

import pytest

from bluebridge.device.layout.ntrdma import commands
from bluebridge.guest.ntrdma.connections import CommandTransport
from bluebridge.guest.protocols.krping import sides as krping_sides
from tests.models.verbs.krping_contract import (
    CLIENT_IP,
    SERVER_IP,
    KrpingContract,
    Sides,
    side_on,
    start,
)
from tests.unit.ntrdma.tcp.programs import program, success, until_said
from tests.unit.ntrdma.tcp.test_verbs import joined

PEER_SECONDS = 15.0
"""The time in which a side has noticed that its peer is lost, and has ended."""
SERVER_IP6, CLIENT_IP6 = "fd00:69::127", "fd00:69::128"


class TestNtrdma(KrpingContract):
    """Over TCP, both sides in one process."""

    device_name = "ntrdma0"

    @pytest.fixture
    def sides(self) -> Iterator[Sides]:
        """On two devices."""
        a, b = joined()
        server, client = side_on(a, SERVER_IP), side_on(b, CLIENT_IP)
        yield server, client
        client.host.close()
        server.host.close()

    def test_nobody_is_there(self, sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
        """An address that the peer has not."""
        monkeypatch.setattr(krping_sides, "RESOLVE_SECONDS", 0.5)
        result = start(sides[1], "client,addr=192.168.69.99,port=9999,count=1").result()
        assert not result.ok


def test_ipv6_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the extension of RESOLVE; messages go both ways between them."""
    a, b = joined()
    served, asked = side_on(a, SERVER_IP6), side_on(b, CLIENT_IP6)
    address = f"addr6={SERVER_IP6},port=9999,count=20,validate"
    run = start(served, f"server,{address}")
    found = start(asked, f"client,{address}").result()
    assert found.validated == run.result().validated == 20, (found.error, run.result().error)
    monkeypatch.setattr(krping_sides, "RESOLVE_SECONDS", 0.5)
    assert not start(asked, "client,addr6=fd00:69::99,port=9999,count=1").result().ok
    for side in (asked, served):
        side.host.close()


def test_a_peer_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said that it connects, and nothing of IPv6: one line tells what to do."""
    monkeypatch.setattr(commands, "EXTENSIONS", commands.CONNECTIONS | commands.ORDERED)
    a, b = joined()
    with (
        a,
        b,
        closing(CommandTransport(b, IPv6Address(CLIENT_IP6).packed)) as transport,
        pytest.raises(OSError, match="by IPv4 addresses only: choose one"),
    ):
        transport.resolve(SERVER_IP6)


@pytest.mark.brief("-client", "count=1000000,wlat-server")
@pytest.mark.parametrize("killed", ["client", "server"])
@pytest.mark.parametrize("test", ["", "count=1000000,wlat"])
def test_a_side_that_is_killed(killed: str, test: str, free_port: int) -> None:
    """The other one says that its peer is lost, and ends, asleep or looking at its memory."""
    over = ("protocols.krping", "--provider", "ntrdma", "--backend")
    place, words = f"127.0.0.1:{free_port}", f"addr={SERVER_IP},port=9999,{test}".rstrip(",")
    with program(*over, f"s:{place}", f"server,{words}") as server:
        until_said(server, "rdma_listen")
        with program(*over, f"c:{place}", f"client,{words}") as client:
            until_said(client, "rdma_connect successful")
            victim, other = (client, server) if killed == "client" else (server, client)
            victim.kill()
            said, _ = other.communicate(timeout=PEER_SECONDS)
            assert other.returncode == 1, said
            assert "krping: failed: the peer is lost" in said, said


@pytest.mark.brief("mem_mode=reg,server_inv")
@pytest.mark.parametrize("options", ["size=65536", "mem_mode=reg,server_inv"])
def test_two_processes(options: str, free_port: int) -> None:
    """As users start them."""
    over = ("protocols.krping", "--provider", "ntrdma", "--backend")
    place = f"127.0.0.1:{free_port}"
    words = f"addr={SERVER_IP},port=9999,count=200,validate,{options}"
    with program(*over, f"s:{place}", f"server,{words}") as server:
        until_said(server, "rdma_listen")
        with program(*over, f"c:{place}", f"client,{words}") as client:
            assert "200 iterations, 200 validated" in success(client)
        success(server)
