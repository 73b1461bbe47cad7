"""Two guests on Ethernet: their queue pairs, and frames of IP."""

from __future__ import annotations

from struct import pack

from bluebridge.device.layout.mlx4.commands import Opcode, SetPort
from bluebridge.device.layout.mlx4.contexts import ServiceType
from tests.models.rdma_node import Node, Pair, TestQp

BROADCAST = b"\xff" * 6


def ethernet_qp(node: Node, qpn: int, **more: int) -> TestQp:
    """Make a queue pair as mlx4_en makes them: one cumulative context."""
    qp = node.create_qp(qpn, ServiceType.MLX, mtu_msgmax=0xFF, **more)
    for opcode in (Opcode.INIT2RTR_QP, Opcode.RTR2RTS_QP):
        node.modify(qp, opcode)
    return qp


def steer(node: Node, qpn: int, promiscuous: int = 0) -> None:
    """Have frames for the port come to the ring `qpn` (RQP_CALC)."""
    mailbox = pack(">I4B12xII", qpn, 7, 7, 0, 0, promiscuous, 1 << 30 | qpn)
    node.command(Opcode.SET_PORT, mailbox, SetPort.RQP_CALC << 8 | 1, 1)


def ethernet_pair() -> Pair:
    """Make two guests with an Ethernet queue pair each, in `qa` and `qb`."""
    pair = Pair()
    pair.qa, pair.qb = ethernet_qp(pair.a, 0x48), ethernet_qp(pair.b, 0x49)
    for node, qp in ((pair.a, pair.qa), (pair.b, pair.qb)):
        steer(node, qp.qpn)
    return pair


def ip_frame(payload: bytes, protocol: int = 17) -> bytearray:
    """Make a frame of UDP or TCP over IPv4 with empty checksums."""
    size = 20 if protocol == 6 else 8
    l4 = pack(">HHHH", 1, 2, 8 + len(payload), 0).ljust(size, b"\0") + payload
    addresses = b"\xc0\xa8\1\1\xc0\xa8\1\2"
    ip = pack(">BBHHHBBH8s", 0x45, 0, 20 + len(l4), 1, 0, 64, protocol, 0, addresses)
    return bytearray(bytes(12) + b"\x08\x00" + ip + l4)
