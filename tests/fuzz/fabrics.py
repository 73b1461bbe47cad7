"""What comes off the wire: subnet management packets, other MADs, Ethernet frames."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.fabric.subnet.packets import smp_to
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.wqe import CQE_REQUEST, SendOpcode
from tests.fuzz.bytes_left import BytesLeft
from tests.models.ib_node import Subnet
from tests.models.rdma_node import LOG_SQ, SQ_SHIFT, Node, Pair, TestQp, data

MADS = 6
FRAMES = 6


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


TARGETS: dict[str, Callable[[bytes], None]] = {"mads": mads, "frames": frames}
