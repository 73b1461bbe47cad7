"""Two guests of which one has rings and rules: which of them a frame reaches."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.layout.mlx4.wqe import SendOpcode
from tests.models.ethernet_pair import ethernet_qp, ip_frame
from tests.models.rdma_node import Pair, data
from tests.models.steering_rules import RuleNode

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
