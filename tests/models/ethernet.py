"""Ethernet of the tests: queue pairs, frames of IP, rules of flow steering as drivers write."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

from bluebridge.device.layout.mlx4.capabilities import INIT_HCA
from bluebridge.device.layout.mlx4.commands import Opcode, SetPort, Status
from bluebridge.device.layout.mlx4.contexts import ServiceType
from bluebridge.device.layout.mlx4.steering import (
    RULE_CONTROL,
    RULE_ETHERNET,
    RULE_INFINIBAND,
    RULE_IPV4,
    RULE_PORTS,
    RULE_VXLAN,
    RuleHeader,
)
from bluebridge.device.layout.mlx4.wqe import SendOpcode
from tests.models.rdma_node import Node, Pair, TestQp, data

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


USER, ETHTOOL, NIC = 0x1000, 0x2000, 0x5000
"""Domains of Linux, the high bits of priorities (inc/device.h: MLX4_DOMAIN_*)."""

MAC_MASK = b"\xff" * 6


class RuleNode(Node):
    """A guest whose driver chose device-managed steering, with `1 << log_rules` rules."""

    log_rules = 17
    high_rate = 0

    def init_mailbox(self) -> bytearray:
        """INIT_HCA as mlx4_core fills it with log_num_mgm_entry_size=-1: no table of groups."""
        mailbox = super().init_mailbox()
        for name in ("log_mc_entry_size", "log_mc_hash_size", "log_mc_table_size"):
            INIT_HCA.set(mailbox, name, 0)
        INIT_HCA.set(mailbox, "flags", 1 | 1 << 6)
        INIT_HCA.set(mailbox, "log_rule_entry_size", 7)
        INIT_HCA.set(mailbox, "log_rule_table_size", self.log_rules)
        INIT_HCA.set(mailbox, "high_rate_mode", self.high_rate)
        return mailbox

    def try_attach(self, qpn: int, *headers: bytes, **control: int) -> tuple[Status, int]:
        """QP_FLOW_STEERING_ATTACH: status and number of the rule."""
        values = {"port": 1, "priority": NIC, "qpn": qpn, **control}
        raw = bytes(RULE_CONTROL.pack(values)) + b"".join(headers)
        return self.try_command(Opcode.QP_FLOW_STEERING_ATTACH, raw, len(raw) // 4)

    def attach(self, qpn: int, *headers: bytes, **control: int) -> int:
        """The same, which must succeed: the number of the rule."""
        status, number = self.try_attach(qpn, *headers, **control)
        assert status == Status.OK, self.host.told[-1]
        assert number
        return number

    def detach(self, number: int) -> None:
        """QP_FLOW_STEERING_DETACH."""
        self.command(Opcode.QP_FLOW_STEERING_DETACH, number)


def to(mac: bytes, **more: int | bytes) -> bytes:
    """A header for one destination address."""
    return ethernet(dmac=mac, dmac_mask=MAC_MASK, **more)


def ethernet(**values: int | bytes) -> bytes:
    """A header of Ethernet."""
    size = RULE_ETHERNET.size // 4
    return bytes(RULE_ETHERNET.pack(values, size=size, id=RuleHeader.ETHERNET))


def infiniband(**values: int | bytes) -> bytes:
    """A header of InfiniBand."""
    size = RULE_INFINIBAND.size // 4
    return bytes(RULE_INFINIBAND.pack(values, size=size, id=RuleHeader.INFINIBAND))


def ipv4(source: bytes = b"", destination: bytes = b"", *, prefix: int = 32) -> bytes:
    """A header of IPv4: addresses that are there have to be equal in `prefix` bits."""
    mask = pack(">I", 0xFFFFFFFF << 32 - prefix & 0xFFFFFFFF)
    values: dict[str, int | bytes] = {}
    for name, address in ("source", source), ("destination", destination):
        if address:
            values |= {name: address, f"{name}_mask": mask}
    return bytes(RULE_IPV4.pack(values, size=RULE_IPV4.size // 4, id=RuleHeader.IPV4))


def ports(kind: RuleHeader, source: int = 0, destination: int = 0, mask: int = 0xFFFF) -> bytes:
    """A header of TCP or UDP: ports other than 0 have to be equal under `mask`."""
    values = {"source": source, "destination": destination}
    masks = {f"{name}_mask": mask for name, port in values.items() if port}
    return bytes(RULE_PORTS.pack(values | masks, size=RULE_PORTS.size // 4, id=kind))


def vxlan(vni: int, mask: int = 0xFFFFFF) -> bytes:
    """A header of VXLAN."""
    size = RULE_VXLAN.size // 4
    return bytes(RULE_VXLAN.pack(vni=vni, vni_mask=mask, size=size, id=RuleHeader.VXLAN))


GROUP = b"\x01\0\x5e\0\0\1"
OTHER = b"\x02\x77\0\0\0\1"
FIRST, SECOND, THIRD = 0x49, 0x4A, 0x4B
SOURCE, DESTINATION = b"\xc0\xa8\1\1", b"\xc0\xa8\1\2"
NOBODY: list[int] = []


class Rings:
    """A sender, and a receiver with three rings and rules."""

    def __init__(self, kind: type[RuleNode] = RuleNode) -> None:
        self.pair = Pair()
        self.node = kind("c", 3, self.pair.fabric)
        self.pair.b = self.node
        self.mac = self.node.mac
        self.sender = ethernet_qp(self.pair.a, 0x48)
        self.rings = [ethernet_qp(self.node, qpn) for qpn in (FIRST, SECOND, THIRD)]
        self._source = self.pair.a.memory(4096)
        self._target = self.node.memory(4096)

    def arrivals(self, frame: bytes) -> list[int]:
        """Numbers of the rings that get a frame of the sender, each as often as it does."""
        self.post_receives()
        address, key = self._source
        self.pair.a.host.poke(address, frame)
        self.pair.a.post_send(self.sender, SendOpcode.SEND, data((key, address, len(frame))))
        return self.arrived()

    def post_receives(self) -> None:
        """Room for a frame in each ring."""
        address, key = self._target
        for ring in self.rings:
            self.node.post_recv(ring, [(key, address, 2048)])

    def arrived(self) -> list[int]:
        """Numbers of the rings that completed receives."""
        return [ring.qpn for ring in self.rings for wc in self.node.completions(ring) if wc.length]

    def frame(self, mac: bytes, rest: bytes = b"\x08\0") -> bytes:
        """A frame of the sender."""
        return mac + self.pair.a.mac + rest

    def packet(self, protocol: int = 17) -> bytes:
        """UDP or TCP from port 1 to port 2 over IPv4, to the receiver."""
        return self.frame(self.mac, bytes(ip_frame(b"data", protocol)[12:]))


Headers = Callable[[Rings], tuple[bytes, ...]]
"""The headers of a rule about what a sender's frames have."""
