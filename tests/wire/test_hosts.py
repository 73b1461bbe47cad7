"""HCAs of two servers that are joined by `--wire HOST:PORT`, on the loopback and without guests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bluebridge.guest.drivers.hca.context import Context, open_hca
from bluebridge.guest.verbs import WcStatus, WrOpcode
from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.free_ports import free_ports
from tests.models.players import PATTERN, SIZE, Player, connected
from tests.models.server import serving

OK = WcStatus.SUCCESS
MACS = "00:02:c9:bb:00:01", "00:02:c9:bb:01:01"
"""The addresses of the two HCAs: a server without a lab around it numbers its own from 1 on."""
HEADER = bytes.fromhex("08000000 00004d00")
"""The VXLAN header of the network of these servers."""


class Host:
    """A host with one HCA, which knows the address of one other host."""

    def __init__(self, folder: Path, mac: str, own: str, peer: str) -> None:
        self.folder = folder
        self.mac = mac
        self.own = own
        self.peer = peer

    @contextmanager
    def serving(self) -> Iterator[Context]:
        """Run its server, and bring its HCA up."""
        words = ["--hca", f"name=a,socket={self.folder / 'a'},mac={self.mac}", "--wire", self.peer]
        words += ["--underlay", self.own, "--control", str(self.folder / "control"), "--pro"]
        with serving("bluebridge.device", words, self.folder / "server.log") as server:
            bus = SocketBus(self.folder / "a")
            try:
                with open_hca(bus) as context:
                    yield context
            finally:
                bus.close()
            assert "Traceback" not in server.text(), server.text()

    def wires(self) -> list[str]:
        """Return what the server says of its wire."""
        return hardware.tell(self.folder / "control", "wires")


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[Host, Host]:
    """Two hosts that name each other, whose servers do not run yet."""
    one, other = (str(end) for end in free_ports(2))
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    return Host(folders[0], MACS[0], one, other), Host(folders[1], MACS[1], other, one)


@pytest.fixture
def joined(hosts: tuple[Host, Host]) -> Iterator[tuple[Context, Context]]:
    """The HCAs of both hosts."""
    with ExitStack() as stack:
        here, there = (stack.enter_context(host.serving()) for host in hosts)
        yield here, there


@pytest.mark.parametrize("opcode", [WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, WrOpcode.SEND])
def test_messages_cross_byte_for_byte(
    hosts: tuple[Host, Host], joined: tuple[Context, Context], opcode: WrOpcode
) -> None:
    here, there = connected(*joined)
    source, target = (there, here) if opcode is WrOpcode.RDMA_READ else (here, there)
    source.view[:] = PATTERN
    there.receive()
    here.send(opcode, [here.sge()], there)
    here.expect(OK)
    assert bytes(target.view) == PATTERN
    for host in hosts:
        (line,) = host.wires()
        assert line.startswith(f"peer {host.peer}: sent ")
        assert "nothing received" not in line and "could not send" not in line


def test_what_another_port_of_a_named_host_sends_is_counted_and_disturbs_nobody(
    hosts: tuple[Host, Host], joined: tuple[Context, Context]
) -> None:
    here, there = connected(*joined)
    address, _, port = hosts[1].own.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(100):
            sender.sendto(HEADER + bytes(60), (address, int(port)))
        sender.sendto(b"\x08", (address, int(port)))
    here.view[:] = PATTERN
    here.send(WrOpcode.RDMA_WRITE, [here.sge(0, SIZE)], there)
    here.expect(OK)
    assert bytes(there.view) == PATTERN
    assert hosts[1].wires()[1] == "refused: other port 101"


def test_a_host_that_ends_costs_its_connections_and_may_come_again(
    hosts: tuple[Host, Host],
) -> None:
    with hosts[0].serving() as here:
        with hosts[1].serving() as there:
            one, other = Player(here), Player(there)
            one.connect(other, timeout=8, retry_count=1)
            other.connect(one)
            one.send(WrOpcode.RDMA_WRITE, [one.sge(0, 8)], other)
            one.expect(OK)
        one.send(WrOpcode.RDMA_WRITE, [one.sge(0, 8)], other)
        one.expect(WcStatus.RETRY_EXC_ERR)
        with hosts[1].serving() as there:
            one, other = connected(here, there)
            one.view[:] = PATTERN
            one.send(WrOpcode.RDMA_WRITE, [one.sge()], other)
            one.expect(OK)
            assert bytes(other.view) == PATTERN
