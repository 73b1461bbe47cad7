"""The connection manager over the real queue pair 1 of two HCAs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.net.cm import CmAttribute, RejectReason
from bluebridge.guest.cm import CmError, CmEvent, CmId, ConnectionManager, ConnParam, EventType
from bluebridge.guest.cm.gsi import GsiTransport, roce_address, roce_port
from bluebridge.guest.cm.messages import encode, ip_header
from bluebridge.guest.netif import NetInterface
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import (
    AccessFlags,
    CompletionQueue,
    Device,
    MemoryRegion,
    ProtectionDomain,
    QpInit,
    QpState,
    QpType,
    QueuePair,
    RecvWr,
    SendWr,
    Sge,
    WcStatus,
)
from bluebridge.host_tools.analyzer.pcap import export
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.capture_reader import parse, read_file
from tests.models.server import ServerProcess, devices

SERVER_IP, CLIENT_IP = "192.168.69.127", "192.168.69.128"
PORT = 7174
WAIT = 10.0


@dataclass
class End:
    """One HCA with address, connection manager and what a queue pair needs."""

    context: Device
    net: NetInterface
    transport: GsiTransport
    manager: ConnectionManager
    pd: ProtectionDomain
    cq: CompletionQueue
    mr: MemoryRegion

    def qp(self) -> QueuePair:
        """A fresh reliable connected queue pair."""
        return self.pd.create_qp(QpInit(QpType.RC, self.cq, self.cq, 4, 4))


def open_end(stack: ExitStack, path: Path, ip: str) -> End:
    """Bring up one HCA; the stack takes it down."""
    bus = SocketBus(path)
    stack.callback(bus.close)
    context = stack.enter_context(open_device(bus))
    net = stack.enter_context(NetInterface(context, ip))
    port = roce_port(context, ip)
    transport = GsiTransport(context, port.gid_index, net)
    manager = ConnectionManager(port, transport, net, partial(roce_address, port.gid_index))
    stack.callback(manager.close)
    pd = context.alloc_pd()
    cq = context.create_cq(16)
    return End(context, net, transport, manager, pd, cq, pd.get_dma_mr(AccessFlags.LOCAL_WRITE))


@pytest.fixture(scope="module")
def pro_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sockets of two ConnectX-3 Pro, which join by packets of RoCE v2."""
    folder = tmp_path_factory.mktemp("pro")
    with devices(folder, "--pro", "--wire", "packets"):
        yield folder


@pytest.fixture(params=["RoCE v1", "RoCE v2"])
def ends(
    request: pytest.FixtureRequest, hca_server: tuple[ServerProcess, Path], pro_folder: Path
) -> Iterator[tuple[End, End]]:
    """The listening and the connecting end."""
    folder = pro_folder if request.param == "RoCE v2" else hca_server[1]
    with ExitStack() as stack:
        yield open_end(stack, folder / "a", SERVER_IP), open_end(stack, folder / "b", CLIENT_IP)


def expect(cm_id: CmId, kind: EventType) -> CmEvent:
    """The next event, which must be of this kind."""
    event = cm_id.events.get(WAIT)
    assert event is not None, f"{kind.name} did not come"
    assert event.type is kind, f"{event.type.name} instead of {kind.name}, status {event.status}"
    return event


def listener(end: End) -> CmId:
    """A listening identifier."""
    cm_id = end.manager.create_id()
    cm_id.bind_addr(SERVER_IP, PORT)
    cm_id.listen()
    return cm_id


def resolved(end: End, port: int = PORT) -> CmId:
    """A client identifier with a route and a queue pair."""
    cm_id = end.manager.create_id()
    cm_id.resolve_addr(SERVER_IP, port)
    expect(cm_id, EventType.ADDR_RESOLVED)
    cm_id.resolve_route()
    expect(cm_id, EventType.ROUTE_RESOLVED)
    cm_id.attach(end.qp())
    return cm_id


def connected(ends: tuple[End, End]) -> tuple[CmId, CmId, CmId]:
    """Listener, its child and the client, established."""
    server, client = listener(ends[0]), resolved(ends[1])
    client.connect(ConnParam(b"hello"))
    child = expect(server, EventType.CONNECT_REQUEST).id
    child.attach(ends[0].qp())
    child.accept(ConnParam(b"welcome"))
    assert expect(client, EventType.ESTABLISHED).private_data.startswith(b"welcome\0")
    assert expect(server, EventType.ESTABLISHED).id is child
    return server, child, client


def verbs_qp(cm_id: CmId) -> QueuePair:
    """The queue pair behind an identifier."""
    assert cm_id.qp is not None
    return cm_id.qp


def test_request_tells_who_asks(ends: tuple[End, End]) -> None:
    """Addresses, private data and parameters of a REQ at the listener."""
    server, client = listener(ends[0]), resolved(ends[1])
    client.connect(ConnParam(b"hello", responder_resources=3, initiator_depth=2, rnr_retry_count=5))
    event = expect(server, EventType.CONNECT_REQUEST)
    child = event.id
    assert event.listener is server and child is not server
    assert event.private_data == b"hello".ljust(56, b"\0")
    assert (child.peer_address, child.peer_port) == (CLIENT_IP, client.port)
    assert (child.address, child.port) == (SERVER_IP, PORT)
    param = event.param
    assert (param.responder_resources, param.initiator_depth, param.rnr_retry_count) == (2, 3, 5)
    assert param.retry_count == 7


def test_data_moves_over_a_connection(ends: tuple[End, End]) -> None:
    """Queue pairs are in RTS on both sides, numbers and PSNs agree: a SEND arrives."""
    _, child, client = connected(ends)
    buffers = [end.context.allocate(4096) for end in ends]
    buffers[1].view[:5] = b"ahoy!"
    keys = [end.mr.lkey for end in ends]
    verbs_qp(child).post_recv(RecvWr(1, [Sge(buffers[0].address, 4096, keys[0])]))
    verbs_qp(client).post_send(SendWr(2, sg_list=[Sge(buffers[1].address, 5, keys[1])]))
    for end in ends:
        while not (done := end.cq.poll()):
            pass
        assert done[0].status is WcStatus.SUCCESS
    assert bytes(buffers[0].view[:5]) == b"ahoy!"


def test_a_pro_sends_udp_alone(pro_folder: Path, tmp_path: Path) -> None:
    """No packet of a connection, its making included, is of RoCE v1."""
    with ExitStack() as stack:
        server = open_end(stack, pro_folder / "a", SERVER_IP)
        test_data_moves_over_a_connection((server, open_end(stack, pro_folder / "b", CLIENT_IP)))
    networks: set[str] = set()
    while not networks:  # what happened last is not yet in the file
        with (tmp_path / "frames").open("wb") as file:
            export.export(LogReader(pro_folder / "log"), Filter(), file)
        frames = read_file(tmp_path / "frames")
        networks = {found.network for frame in frames if (found := parse(frame))}
    assert networks == {"v2-ipv4"}


def test_disconnect(ends: tuple[End, End]) -> None:
    """DISCONNECTED on both sides, receives flushed, time-wait over after a while."""
    server, child, client = connected(ends)
    verbs_qp(client).post_recv(RecvWr(5, []))
    client.disconnect()
    assert expect(server, EventType.DISCONNECTED).id is child
    child.disconnect()
    assert expect(client, EventType.DISCONNECTED).status == 0
    assert expect(client, EventType.TIMEWAIT_EXIT).id is client
    assert expect(server, EventType.TIMEWAIT_EXIT).id is child
    assert [wc.status for wc in ends[1].cq.poll()] == [WcStatus.WR_FLUSH_ERR]
    assert verbs_qp(child).query_state() is QpState.ERR


def test_reject_by_the_consumer(ends: tuple[End, End]) -> None:
    """Reason 28 with private data; the listener goes on."""
    server, client = listener(ends[0]), resolved(ends[1])
    client.connect()
    expect(server, EventType.CONNECT_REQUEST).id.reject(b"busy")
    event = expect(client, EventType.REJECTED)
    assert (event.status, event.private_data[:4]) == (RejectReason.CONSUMER_DEFINED, b"busy")
    again = resolved(ends[1])
    again.connect()
    expect(server, EventType.CONNECT_REQUEST)


def test_nobody_listens(ends: tuple[End, End]) -> None:
    """Reason 8: no such service."""
    client = resolved(ends[1], 1)
    client.connect()
    assert expect(client, EventType.REJECTED).status == RejectReason.INVALID_SERVICE_ID


def test_address_nobody_has(ends: tuple[End, End]) -> None:
    """ADDR_ERROR after the time given."""
    client = ends[1].manager.create_id()
    client.resolve_addr("192.168.69.99", PORT, 0.3)
    assert expect(client, EventType.ADDR_ERROR).status < 0


@pytest.mark.full
def test_a_host_without_connection_manager(ends: tuple[End, End]) -> None:
    """It answers ARP but no REQ: after the repetitions, UNREACHABLE."""
    client = resolved(ends[1])
    ends[0].manager.close()
    client.connect()
    event = expect(client, EventType.UNREACHABLE)
    assert event.status == -110


def test_destroying_a_connection_disconnects_it(ends: tuple[End, End]) -> None:
    """The peer hears of it."""
    server, child, client = connected(ends)
    client.destroy()
    assert expect(server, EventType.DISCONNECTED).id is child


def test_a_restarted_client_replaces_its_old_connection(ends: tuple[End, End]) -> None:
    """Its queue pair number asks anew: the old connection, which nobody ended, is over."""
    server, child, client = connected(ends)
    manager = ends[1].manager
    with manager.table.lock:
        manager.table.forget(client)  # as if its process had died
    again = manager.create_id()
    again.resolve_addr(SERVER_IP, PORT)
    expect(again, EventType.ADDR_RESOLVED)
    again.qp = client.qp
    again.connect()
    stale = expect(server, EventType.DISCONNECTED)
    assert (stale.id, stale.status) == (child, -104)
    assert expect(server, EventType.CONNECT_REQUEST).id is not child


def test_a_stale_client_stays_until_its_old_connection_is_closed(
    ends: tuple[End, End], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener calls the request stale, and sends the DREQ to a dead process's connection."""
    monkeypatch.setattr("bluebridge.guest.cm.connection.STALE_SECONDS", 1000.0)
    server, client = listener(ends[0]), resolved(ends[1])
    client.connect()
    child = expect(server, EventType.CONNECT_REQUEST).id
    assert child.peer is not None
    child.reject(reason=RejectReason.STALE_CONNECTION)
    assert client.events.get(0.2) is None
    old = {"local_comm_id": 5, "remote_comm_id": 6, "remote_qpn": verbs_qp(client).qpn}
    ends[0].transport.send(encode(CmAttribute.DREQ, 1, old), child.peer)
    assert expect(client, EventType.REJECTED).status == RejectReason.STALE_CONNECTION


def test_hostile_messages_change_nothing(ends: tuple[End, End]) -> None:
    """MADs of any content from a peer: dropped, and connections still come up."""
    transport = ends[1].transport
    client = resolved(ends[1])
    peer = client.peer
    assert peer is not None
    for kind in CmAttribute:
        transport.send(encode(kind, 1, {}), peer)
        transport.send(encode(kind, 2, {"local_comm_id": 0xFFFFFFFF}), peer)
    request: dict[str, Value] = {"local_comm_id": 77, "service_id": 0x1060000 | PORT}
    server = listener(ends[0])
    no_mtu = ip_header(SERVER_IP, 1, SERVER_IP).ljust(92, b"\0")
    for number, private_data in enumerate((b"\xff" * 92, no_mtu)):
        request.update(local_comm_id=77 + number, private_data=private_data)
        transport.send(encode(CmAttribute.REQ, 3 + number, request), peer)
    transport.send(bytes(256), peer)
    transport.send(b"\xff" * 256, peer)
    client.connect()
    assert expect(server, EventType.CONNECT_REQUEST).id.peer_address == CLIENT_IP


def test_calls_in_the_wrong_order(ends: tuple[End, End]) -> None:
    """EINVAL and the like with one line each."""
    cm_id = ends[0].manager.create_id()
    for call in (cm_id.listen, cm_id.resolve_route, cm_id.connect, cm_id.accept, cm_id.reject):
        with pytest.raises(CmError):
            call()
    with pytest.raises(CmError, match="not an address of this HCA"):
        cm_id.bind_addr("10.1.1.1", PORT)
    with pytest.raises(CmError, match="is no IP address"):
        cm_id.resolve_addr(socket.gethostname() + ".invalid", PORT)
    listener(ends[0])
    cm_id.bind_addr("0.0.0.0", PORT)
    with pytest.raises(CmError, match="taken"):
        cm_id.listen()
