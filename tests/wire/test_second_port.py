"""The second port of an HCA with the guest's driver: its own addresses, network and QP1."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bluebridge.device.layout.mlx4.eqe import PORT_DOWN, EventType
from bluebridge.guest.cm import ConnParam, open_cm
from bluebridge.guest.cm import EventType as CmEventType
from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.netif import NetInterface
from bluebridge.guest.protocols.krping import host as krping
from bluebridge.guest.protocols.krping.progress import Log
from bluebridge.guest.verbs import QpInit, QpType, SendFlags, SendWr, VerbsError, WcStatus, WrOpcode
from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.lab.hardware import Hardware
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.players import PATTERN, QKEY, Player, connected, driven, fill
from tests.models.server import functions
from tests.models.verbs.krping_contract import Output
from tests.wire.conftest import StartServer
from tests.wire.test_cm import expect

Contexts = tuple[Context, Context]


@pytest.fixture
def folder(start_server: StartServer, tmp_path: Path) -> Path:
    """A server with two HCAs of two ports each."""
    words = (*functions(tmp_path), "--ports", "2", "--control", str(tmp_path / "control"))
    start_server("bluebridge.device", *words)
    return tmp_path


@pytest.fixture
def contexts(folder: Path) -> Iterator[Contexts]:
    """Both HCAs, their first ports up."""
    with driven(folder) as (a, b):
        yield a, b


def control(folder: Path, line: str) -> list[str]:
    """Tell the server."""
    return hardware.tell(folder / "control", line)


def test_each_port_is_one_device_with_addresses_of_its_own(contexts: Contexts) -> None:
    a, _ = contexts
    second = a.port(2)
    assert second is a.port(2) is second.port(2)
    assert second.port(1) is a.port(1) is a
    assert (a.ethernet_port.number, second.ethernet_port.number) == (1, 2)
    assert second.ethernet_port.mac != a.ethernet_port.mac
    assert second.query_port().active
    second.ethernet_port.add_gid(bytes(15) + b"\1")
    assert a.query_port().gids != second.query_port().gids
    assert a.query_device() == second.query_device()
    for number in (0, 3):
        with pytest.raises(VerbsError, match=f"no port {number}"):
            a.port(number)


@pytest.mark.parametrize("kind", [QpType.RC, QpType.UC])
def test_connections_of_both_ports_go_different_ways(
    contexts: Contexts, folder: Path, kind: QpType
) -> None:
    first = connected(*contexts, kind)
    second = connected(contexts[0].port(2), contexts[1].port(2), kind)
    for a, b in (first, second):
        fill(a, b)
        a.send(WrOpcode.RDMA_WRITE, [a.sge()], b)
        a.expect(WcStatus.SUCCESS)
        assert bytes(b.view) == PATTERN
        b.view[:] = bytes(len(b.view))
    with Hardware(lambda line: control(folder, line)).drop("b/2") as rule:
        for a, b in (first, second):
            a.send(WrOpcode.RDMA_WRITE, [a.sge()], b)
            a.expect(WcStatus.SUCCESS if kind is QpType.UC or a is first[0] else _LOST)
        assert bytes(first[1].view) == PATTERN
        assert not any(second[1].view)
        assert rule.taken


_LOST = WcStatus.RETRY_EXC_ERR


def test_datagrams_of_the_second_port(contexts: Contexts) -> None:
    a, b = (Player(context.port(2), QpType.UD) for context in contexts)
    for player in (a, b):
        player.start_datagrams()
    b.receive()
    fill(a, b)
    request = SendWr(1, sg_list=(a.sge(0, 1000),), remote_qpn=b.qp.qpn, remote_qkey=QKEY)
    request.send_flags = SendFlags.SIGNALED
    request.address_vector = a.ctx.address_vector(b.ctx.address)
    a.qp.post_send(request)
    a.expect(WcStatus.SUCCESS)
    (wc,) = b.expect(WcStatus.SUCCESS)
    assert wc.smac == a.ctx.ethernet_port.mac
    assert bytes(b.view[40:1040]) == PATTERN[:1000]


def test_connections_are_managed_on_both_ports_at_once(contexts: Contexts) -> None:
    with ExitStack() as stack:
        for port, net in ((1, "10.1.1"), (2, "10.1.2")):
            devices = [context.port(port) for context in contexts]
            nets = [
                stack.enter_context(NetInterface(device, f"{net}.{n}"))
                for n, device in enumerate(devices, 1)
            ]
            assert nets[0].resolve(f"{net}.2") == devices[1].ethernet_port.mac
            managers = [
                open_cm(device, f"{net}.{n}", interface)
                for n, (device, interface) in enumerate(zip(devices, nets, strict=True), 1)
            ]
            for manager in managers:
                stack.callback(manager.close)
            server, client = (manager.create_id() for manager in managers)
            server.bind_addr(f"{net}.1", 7000)
            server.listen()
            client.resolve_addr(f"{net}.1", 7000)
            expect(client, CmEventType.ADDR_RESOLVED)
            client.resolve_route()
            expect(client, CmEventType.ROUTE_RESOLVED)
            qps = []
            for device in devices:
                cq = device.create_cq(8)
                qps.append(device.alloc_pd().create_qp(QpInit(QpType.RC, cq, cq, 4, 4)))
            client.attach(qps[1])
            client.connect(ConnParam(b"hello"))
            child = expect(server, CmEventType.CONNECT_REQUEST).id
            child.attach(qps[0])
            child.accept(ConnParam(b""))
            expect(client, CmEventType.ESTABLISHED)


def test_a_port_goes_down_and_comes_back_alone(contexts: Contexts, folder: Path) -> None:
    a, b = contexts
    second = a.port(2)
    Player(second)
    second.close()
    second.close()
    assert control(folder, "status")[:2] == [
        "a/1 working cable in link up",
        "a/2 working cable in link down",
    ]
    again = a.port(2)
    assert again is not second and again.query_port().active
    first, other = connected(again, b.port(2))
    fill(first, other)
    first.send(WrOpcode.RDMA_WRITE, [first.sge()], other)
    first.expect(WcStatus.SUCCESS)


def test_port_events_are_those_of_the_port(contexts: Contexts, folder: Path) -> None:
    a, _ = contexts
    second = a.port(2)
    control(folder, "link a/2 down")
    while True:
        event = a.async_events.get_event(5)
        assert event is not None
        if (event.type, event.subtype) == (EventType.PORT_CHANGE, PORT_DOWN):
            break
    assert event.number == 2
    assert (a.ethernet_port.active, second.ethernet_port.active) == (True, False)


def test_krping_over_the_second_port(folder: Path) -> None:
    with ExitStack() as stack:
        hosts = []
        for number, name in enumerate("ab", 1):
            bus = SocketBus(folder / name)
            stack.callback(bus.close)
            host = krping.host_of(krping.open_hca(bus), f"10.1.2.{number}", Log(Output()), port=2)
            stack.callback(host.close)
            hosts.append(host)
        results = []
        command = "server,addr=10.1.2.1,port=9999,count=20,validate"
        server = threading.Thread(target=lambda: results.append(hosts[0].run(command)))
        with Hardware(lambda line: control(folder, line)).drop("a/1"):
            server.start()
            result = hosts[1].run("client,addr=10.1.2.1,port=9999,count=20,validate")
            server.join(20)
        assert result.ok and results[0].ok


def test_faults_of_the_second_network(start_server: StartServer, tmp_path: Path) -> None:
    names = ("a", "b", "a.1", "b.1")
    hcas = [f"name={n},socket={tmp_path / n}{',net=1' if '.' in n else ''}" for n in names]
    words = [word for hca in hcas for word in ("--hca", hca)]
    start_server("bluebridge.device", *words, "--control", str(tmp_path / "control"))
    with driven(tmp_path, names) as (a, b, a1, b1):
        pairs = connected(a, b), connected(a1, b1)
        with Hardware(lambda line: control(tmp_path, line)).drop("a.1") as rule:
            for (first, second), status in zip(pairs, (WcStatus.SUCCESS, _LOST), strict=True):
                first.send(WrOpcode.RDMA_WRITE, [first.sge()], second)
                first.expect(status)
            assert rule.taken
