"""Two guests whose adapters are joined by a wire of packets."""

from __future__ import annotations

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.fabric.interface import FabricPort
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Frames, Message
from bluebridge.device.fabric.settings import NetworkSettings
from bluebridge.device.layout.mlx4.commands import SetPort
from bluebridge.device.layout.mlx4.contexts import ROCE_MODE_V2
from bluebridge.device.layout.net.roce import BthOpcode
from bluebridge.device.mlx4.settings.config import Features
from bluebridge.device.packets.reader import WirePacket, read_packet
from bluebridge.device.rdma.connected.packet_sender import PacketSender
from bluebridge.device.rdma.connected.packet_wire import PacketWire
from tests.models.faulty_pair import parsed
from tests.models.rdma_node import Node, Pair, SendOpcode, TestQp, data, gid_table, remote
from tests.models.watched_fabric import WatchedFabric

SIZE = 1 << 18
STEP = 0.0005
"""Seconds that both clocks move at a time."""


class PacketPair(Pair):
    """Two guests with Pro adapters on a wire of packets.

    `packets` are those that left either, `reported` when B sent its reports.
    """

    def __init__(self, ack_timeout_factor: float = 1.0) -> None:
        self.fabric = LocalFabric()
        self.watched = WatchedFabric(self.fabric)
        self.packets: list[WirePacket] = []
        self.reported: list[float] = []
        pro = Features(pro=True)
        network = NetworkSettings(packets=True, ack_timeout_factor=ack_timeout_factor)
        self.wires: list[PacketWire] = []
        PacketWire(self.watched, lambda act: self.a.host.call_soon(act), self.wires)
        PacketWire(self.watched, lambda act: self.b.host.call_soon(act), self.wires)
        self.a = Node("a", 1, self.wires[0], features=pro, network=network)
        self.b = Node("b", 2, self.wires[1], features=pro, network=network)
        for node in (self.a, self.b):
            node.set_port(SetPort.ROCE_ADDR, gid_table((node.gid, 2)))
        self.rules = FaultRules(self.a.host.call_later, EventLog())
        for name, wire in zip("ab", self.wires, strict=True):
            self.rules.add_link(name, name, wire, self.fabric)
        self.watched.watch = self._note
        self.qa, self.qb = self.a.create_qp(0x240), self.b.create_qp(0x250)
        self._connect(self.qa, self.qb)
        self.source, self.lkey = self.a.memory(SIZE)
        self.target, self.rkey = self.b.memory(SIZE)

    def _connect(self, qa: TestQp, qb: TestQp, **more: int) -> None:
        self.a.to_rtr(qa, self.b, qb.qpn, roce_mode=ROCE_MODE_V2, **more)
        self.b.to_rtr(qb, self.a, qa.qpn, roce_mode=ROCE_MODE_V2, **more)
        self.a.to_rts(qa)
        self.b.to_rts(qb)

    def connected(self, qpn: int, **more: int) -> TestQp:
        """One more queue pair of A, whose peer has the same number."""
        qa, qb = (node.create_qp(qpn, log_cq=2) for node in (self.a, self.b))
        self._connect(qa, qb, **more)
        return qa

    def _note(self, source: FabricPort, message: Message) -> bool:
        if isinstance(message, Frames):
            for frame in (frame for train in message.trains for frame in train.frames):
                self.packets.append(read_packet(bytes(frame)))
                if self.packets[-1].opcode == BthOpcode.CNP:
                    self.reported.append(self.b.host.now)
        return True

    def rule(self, words: str, link: str = "a") -> None:
        """Put a rule into force."""
        self.rules.add(link, parsed(words))

    def segments(self, size: int) -> bytes:
        """The segments of a READ or WRITE of A."""
        return remote(self.target, self.rkey) + data((self.lkey, self.source, size))

    def write(self, opcode: int = SendOpcode.RDMA_WRITE, size: int = SIZE) -> float:
        """A message, by A; the seconds until it is complete."""
        self.a.post_send(self.qa, opcode, self.segments(size))
        begin = self.a.host.now
        while not (found := self.a.completions(self.qa)):
            self.run(STEP)
            assert self.a.host.now < begin + 60
        assert [wc.status for wc in found] == [0]
        return self.a.host.now - begin

    def engine(self, node: Node) -> PacketSender:
        """The sending half of a guest's queue pair."""
        qp = node.adapter.qps.get((self.qa if node is self.a else self.qb).qpn)
        assert qp is not None and isinstance(qp.engine, PacketSender)
        return qp.engine

    def reports(self) -> list[WirePacket]:
        """The CNPs that were sent."""
        return [packet for packet in self.packets if packet.opcode == BthOpcode.CNP]
