"""Messages of every kind, sent past a tap into a log: what the capture tests work on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.fabric.capture import CapturedFabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import (
    Datagram,
    Frames,
    Message,
    Request,
    Response,
    Route,
    Train,
)
from bluebridge.device.layout.ib.mad import MAD, Method, MgmtClass
from bluebridge.device.layout.net import cm
from bluebridge.device.layout.net.ethernet import ARP, BROADCAST, ETHERNET, ETHERTYPE_ARP
from bluebridge.device.layout.net.roce import GRH, GSI_QKEY, Op, Syndrome, ipv4_gid

MTU = 1024
MAC_A, MAC_B = bytes.fromhex("0002c9bb0001"), bytes.fromhex("0002c9bb0002")
IPV4_A, IPV4_B = ipv4_gid(bytes((192, 168, 69, 1))), ipv4_gid(bytes((192, 168, 69, 2)))
LOCAL_A = bytes.fromhex("fe800000000000000202c9fffebb0001")
LOCAL_B = bytes.fromhex("fe800000000000000202c9fffebb0002")
QPN_A, QPN_B = 0x800240, 0x250
PSN = 0xFFFFFE  # wraps in the middle of a message
ADDRESS, RKEY = 0x7F12_3456_7000, 0x8A00


class Cable:
    """A port that is up and takes everything."""

    def __init__(self, *addresses: bytes) -> None:
        self.addresses = frozenset(addresses)

    def receive(self, message: Message) -> int:
        """Take a message."""
        return 0


def routes() -> dict[str, Route]:
    """The ways a message can go."""
    found = {
        "v1": Route(MAC_A, MAC_B, LOCAL_A, LOCAL_B, flow_label=0x12345),
        "v1-ipv4": Route(MAC_A, MAC_B, IPV4_A, IPV4_B),
        "v1-vlan": Route(MAC_A, MAC_B, IPV4_A, IPV4_B, vlan=100, service_level=3),
        "v2-ipv4": Route(MAC_A, MAC_B, IPV4_A, IPV4_B, roce=2),
        "v2-ipv6": Route(MAC_A, MAC_B, LOCAL_A, LOCAL_B, roce=2, flow_label=0xABCDE),
        "ib": Route(b"\0\1", b"\0\2", bytes(16), bytes(16), service_level=2, pkey=0x8001),
        "ib-grh": Route(b"\0\1", b"\0\2", LOCAL_A, LOCAL_B, flow_label=7),
    }
    for route in found.values():
        route.traffic_class, route.hop_limit = 0x20, 63
    return found


def content(length: int) -> bytes:
    """Bytes that tell their place."""
    return bytes((at * 7 + (at >> 8)) & 0xFF for at in range(length))


def views(data: bytes) -> list[memoryview]:
    """A payload in two pieces, as from two pages."""
    half = len(data) // 2
    return [memoryview(data[:half]), memoryview(data[half:])] if data else []


def packets_of(length: int) -> int:
    """How many packets of `MTU` a message takes."""
    return -(-length // MTU) or 1


def request(
    route: Route, op: Op, length: int, *, reliable: bool = True, srqn: int | None = None
) -> Request:
    """A request of A with everything in it that the operation can carry."""
    sends = op not in (Op.READ, Op.COMPARE_SWAP, Op.FETCH_ADD)
    return Request(
        op, route, QPN_A, QPN_B, PSN, packets_of(length), length,
        views(content(length)) if sends else (), ADDRESS, RKEY, 0xDEADBEEF, True, reliable,
        (0x1111, 0x2222, 0xFFFF, 0xFFFF), srqn,
    )  # fmt: skip


def requests(route: Route) -> Iterator[Message]:
    """Each operation of a reliable connection with its answer, and those of an unreliable one."""
    for op in (Op.SEND, Op.SEND_IMM, Op.SEND_INV, Op.WRITE, Op.WRITE_IMM):
        for length in (0, 1, 64, MTU, 2 * MTU + 3, 3 * MTU):
            yield request(route, op, length)
            yield Response(route, QPN_A, PSN, Syndrome.ACK, 1, packets=packets_of(length))
            if op is not Op.SEND_INV:
                yield request(route, op, length, reliable=False)
    for length in (0, 1, MTU, 2 * MTU + 3):
        yield request(route, Op.READ, length)
        data = views(content(length))
        yield Response(route, QPN_A, PSN, 0, 2, data, packets=packets_of(length), read=True)
    for op in (Op.COMPARE_SWAP, Op.FETCH_ADD):
        yield request(route, op, 8)
        yield Response(route, QPN_A, PSN, 0, 3, (), 0x55AA)
    yield request(route, Op.SEND_IMM, MTU + 1, srqn=0x77)
    yield Response(route, QPN_A, PSN, 0, 3, packets=2, xrc=True)
    for syndrome in (Syndrome.NAK_PSN, Syndrome.NAK_REMOTE_ACCESS, Syndrome.RNR_NAK | 14):
        yield Response(route, QPN_A, PSN, syndrome, 3)


def datagrams(route: Route) -> Iterator[Message]:
    """UD messages with and without immediate, and a MAD."""
    grh = b""
    if any(route.dgid):
        grh = bytes(GRH.pack(version=6, flow_label=route.flow_label))
    for length, immediate in ((0, None), (5, 0x1234), (MTU, None)):
        data = content(length)
        yield Datagram(route, QPN_A, QPN_B, 0x11111111, 7, grh, data, immediate, True)
    yield Datagram(route, 1, 1, GSI_QKEY, 8, grh, mad())


def mad() -> bytes:
    """A ready-to-use message of the connection manager."""
    head = MAD.pack(
        base_version=1, mgmt_class=MgmtClass.CM, class_version=2, method=Method.SEND,
        tid=0x1234, attr_id=cm.CmAttribute.RTU,
    )  # fmt: skip
    return bytes(head + cm.RTU.pack(local_comm_id=5, remote_comm_id=6))


def arp() -> Frames:
    """Who has B? tell A."""
    head = ETHERNET.pack(dmac=BROADCAST, smac=MAC_A, ethertype=ETHERTYPE_ARP)
    body = ARP.pack(
        hardware=1, protocol=0x0800, hardware_size=6, protocol_size=4, operation=1,
        sender_mac=MAC_A, sender_ip=IPV4_A[12:], target_ip=IPV4_B[12:],
    )  # fmt: skip
    return Frames(BROADCAST, [Train([bytes(head + body).ljust(60, b"\0")])])


def write_log(folder: Path, messages: Sequence[Message], *, capture: int = 8192) -> None:
    """A bus log in which port `a` sent `messages`."""
    log = FileLog(folder, capture=capture)
    send(log, messages)
    log.close()


def send(log: FileLog, messages: Sequence[Message]) -> None:
    """Record that port `a` sent `messages`."""
    fabric = CapturedFabric(LocalFabric(), log, "a")
    port = Cable(MAC_A)
    fabric.attach(port)
    fabric.announce(port, port.addresses, up=True)
    for message in messages:
        fabric.send(port, message)


def everything() -> list[Message]:
    """One of each on every way."""
    found: list[Message] = [arp()]
    for route in routes().values():
        found += [*requests(route), *datagrams(route)]
    return found
