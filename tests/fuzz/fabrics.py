"""What comes off the wire: subnet management packets, other MADs, Ethernet frames, RoCE packets."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.fabric.subnet.packets import smp_to
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.wqe import CQE_REQUEST, SendOpcode
from bluebridge.device.layout.net.ip import (
    IPV4,
    IPV6,
    PROTOCOL_UDP,
    ROCE_PORT,
    UDP,
    ones_complement_sum,
)
from bluebridge.device.layout.net.roce import GRH, GRH_NEXT_BTH, ICRC_SIZE
from bluebridge.device.packets import crc
from bluebridge.device.packets.reader import PacketReader, Reason
from tests.fuzz.bytes_left import BytesLeft
from tests.models.ib_node import Subnet
from tests.models.rdma_node import LOG_SQ, SQ_SHIFT, Node, Pair, TestQp, data

MADS = 6
FRAMES = 6
LONGEST = 4200


def mads(data_: bytes) -> None:
    """Management packets of a guest to switch, subnet manager, peer and itself."""
    left = BytesLeft(data_)
    subnet = Subnet()
    for _ in range(MADS):
        if not left:
            break
        payload = bytearray(left.block(256))
        number = left.choice((0, 1))
        payload[0], payload[2] = 1, 1
        payload[1] = left.choice((0x81, 1) if not number else (3, 4, 7, payload[1]))
        target = left.choice((b"\0\1", b"\0\2", b"\0\3", b"\xff\xff"))
        message = smp_to(b"\0\2", target, bytes(payload))
        message.source_qpn = message.target_qpn = number
        message.qkey = 0x80010000 if number else 0
        subnet.a.port.send(message)
        own = bytes(payload)
        subnet.b.try_command(Opcode.MAD_IFC, own, 1, left.number(1) & 3, out=True)
    subnet.clock.run(1)


def frames(data_: bytes) -> None:
    """Ethernet frames with any flags of the send entry."""
    left = BytesLeft(data_)
    pair, sender = ethernet_pair()
    address, key = pair.a.memory(65536)
    for _ in range(FRAMES):
        if not left:
            break
        payload = left.block(2048)
        head = left.choice((pair.b.mac, pair.a.mac, b"\xff" * 6, payload[:6])) + pair.a.mac
        pair.a.host.poke(address, head + payload)
        length = left.choice((len(payload), 60, left.number(2)))
        _post(pair.a, sender, left, data((key, address, length)))
        pair.run()


def ethernet_pair() -> tuple[Pair, TestQp]:
    """Two guests with a queue pair for frames each; the first one's sends."""
    pair = Pair()
    sender = _ethernet(pair.a, 0x60)
    _ethernet(pair.b, 0x61)
    return pair, sender


def _ethernet(node: Node, qpn: int) -> TestQp:
    qp = node.create_qp(qpn, ServiceType.MLX, mtu_msgmax=0xFF)
    node.modify(qp, Opcode.INIT2RTR_QP, pri_sched_queue=0x83)
    node.modify(qp, Opcode.RTR2RTS_QP)
    address, key = node.memory(8192)
    for _ in range(8):
        node.post_recv(qp, [(key, address, 4096)])
    return qp


def _post(node: Node, qp: TestQp, left: BytesLeft, segments: bytes) -> None:
    """A send entry: opcode, flags and what precedes the data are the fuzzer's."""
    slot, lap = qp.sent & (1 << LOG_SQ) - 1, qp.sent >> LOG_SQ & 1
    opcode = left.choice((SendOpcode.SEND, SendOpcode.LSO, left.number(1) & 0x1F))
    more = left.take(left.choice((0, 0, 16, 32))).ljust(0, b"\0")
    more += bytes(-len(more) % 16)
    flags = CQE_REQUEST | left.number(4)
    words = (lap << 31 | opcode | left.number(4) & 0x7FFFFF00, (16 + len(more) + 16) // 16)
    raw = b"".join(word.to_bytes(4, "big") for word in (*words, flags, left.number(4)))
    node.host.poke(qp.address + (slot << SQ_SHIFT), raw + more + segments)
    qp.sent += 1
    node.doorbell(qp.qpn)


def packets(data_: bytes) -> None:
    """RoCE packets: any bytes; then any bytes between right network headers and a right ICRC."""
    reader = PacketReader()
    reader.read(data_)
    left = BytesLeft(data_)
    carrier, transport = left.choice((_v1, _ipv4, _ipv6)), left.take(LONGEST)
    reader.refused = dict.fromkeys(Reason, 0)
    packet = reader.read(bytes(12) + carrier(transport))
    if packet is not None:
        packet.headers()
        assert len(packet.payload) < len(transport)
    else:
        found = {reason for reason, count in reader.refused.items() if count}
        assert found <= {Reason.LENGTH, Reason.VERSION, Reason.OPCODE}


def _v1(transport: bytes) -> bytes:
    length = len(transport) + ICRC_SIZE
    grh = bytes(GRH.pack(version=6, payload_length=length, next_header=GRH_NEXT_BTH))
    return b"\x89\x15" + grh + transport + crc.invariant(crc.before_roce_v1(grh), transport)


def _ipv4(transport: bytes) -> bytes:
    ip = IPV4.pack(
        version=4, header_words=5, protocol=PROTOCOL_UDP,
        total_length=IPV4.size + UDP.size + len(transport) + ICRC_SIZE,
    )  # fmt: skip
    IPV4.set(ip, "checksum", ones_complement_sum(bytes(ip)))
    return b"\x08\0" + _v2(bytes(ip), transport)


def _ipv6(transport: bytes) -> bytes:
    length = UDP.size + len(transport) + ICRC_SIZE
    ip = IPV6.pack(version=6, payload_length=length, next_header=PROTOCOL_UDP)
    return b"\x86\xdd" + _v2(bytes(ip), transport)


def _v2(ip: bytes, transport: bytes) -> bytes:
    length = UDP.size + len(transport) + ICRC_SIZE
    udp = bytes(UDP.pack(destination_port=ROCE_PORT, length=length))
    return ip + udp + transport + crc.invariant(crc.before_roce_v2(ip, udp), transport)


TARGETS: dict[str, Callable[[bytes], None]] = {"mads": mads, "frames": frames, "packets": packets}
