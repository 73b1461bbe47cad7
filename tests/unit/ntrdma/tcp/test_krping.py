"""krping and the connection manager over NTRDMA: neither knows that it is not the HCA."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.models.verbs.krping_contract import KrpingContract, Sides
from tests.models.verbs.krping_pair import CLIENT_IP, SERVER_IP, side_on, start
from tests.unit.ntrdma.tcp.programs import program, success, until_said
from tests.unit.ntrdma.tcp.test_verbs import joined


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

    def test_nobody_is_there(self, sides: Sides) -> None:
        """An address that the peer has not."""
        result = start(sides[1], "client,addr=192.168.69.99,port=9999,count=1").result()
        assert not result.ok


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
