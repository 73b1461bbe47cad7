"""The switch of a subnet: ports for cables, and a port 0 of its own where management ends.

External ports are `SwitchPort`s; the `Switch` itself is the fabric's port for what is addressed
to its LID: its subnet and performance management agents, and the subnet administrator. Rules of
directed routes: InfiniBand vol. 1, 14.2.2 (C14-9 and C14-13); the other side is Linux `core/smi.c`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple, Protocol

from bluebridge.device.fabric.addresses import PERMISSIVE, lid_bytes
from bluebridge.device.fabric.interface import Fabric, FabricPort
from bluebridge.device.fabric.messages import Datagram, Message
from bluebridge.device.fabric.subnet import agents
from bluebridge.device.fabric.subnet.packets import answer_to, smp_to
from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.fabric.subnet.topology import SWITCH, Node
from bluebridge.device.layout.ib.link import FIRST_GROUP_LID, PERMISSIVE_LID
from bluebridge.device.layout.ib.mad import (
    DIRECTION,
    MAD,
    MAD_SIZE,
    MAX_HOPS,
    SMP,
    SMP_DATA_OFFSET,
    SMP_SIZE,
    SWITCH_INFO,
    Method,
    MgmtClass,
    SmpAttribute,
)
from bluebridge.device.layout.net.roce import GSI_QKEY, GSI_QPN, SMI_QPN

_INITIAL = SMP.field("initial_path").offset
_RETURN = SMP.field("return_path").offset

DEVICE_SWITCH = 0xC738  # SwitchX, the generation of ConnectX-3
DESCRIPTION = b"bluebridge switch"
MULTICAST_LIDS = 0x400
LIFE_TIME = 18
ALL_PORTS_GUIDS, ALL_PORTS_PKEYS = 1, 16

Send = Callable[[FabricPort, Message], int]


class Fate(Enum):
    """The ways in which a switch can treat an SMP."""

    HERE = auto()  # for the switch's own agent
    PORT = auto()  # out of a port, to the other end of its cable
    LID = auto()  # on by LID: the directed part is over
    DROP = auto()


class Step(NamedTuple):
    """The next step of an SMP: its fate, the port or LID, its bytes with the hop noted."""

    fate: Fate
    where: int = 0
    smp: bytes = b""


DROPPED = Step(Fate.DROP)


def arrive(smp: bytes, ingress: int) -> Step:
    """Return the next step of an SMP that came in at port `ingress`."""
    get = SMP.get
    pointer, count = get(smp, "hop_pointer"), get(smp, "hop_count")
    if count >= MAX_HOPS:
        return DROPPED
    packet = bytearray(smp)
    if get(smp, "status") & DIRECTION:
        return _back(packet, pointer, count)
    if pointer < count:
        if pointer:
            packet[_RETURN + pointer] = ingress
        SMP.set(packet, "hop_pointer", pointer + 1)
        return Step(Fate.PORT, packet[_INITIAL + pointer + 1], bytes(packet))
    if pointer > count + 1:
        return DROPPED
    if pointer == count:
        if count:
            packet[_RETURN + pointer] = ingress
        SMP.set(packet, "hop_pointer", pointer + 1)
    target = get(smp, "dr_dlid")
    if target == PERMISSIVE_LID:
        return Step(Fate.HERE, 0, bytes(packet))
    return Step(Fate.LID, target, bytes(packet))


def reply(smp: bytes) -> Step:
    """Return the next step of an answer that the switch itself gives."""
    packet = bytearray(smp)
    SMP.set(packet, "status", SMP.get(smp, "status") | DIRECTION)
    count = SMP.get(smp, "hop_count")
    if not count:
        target = SMP.get(smp, "dr_slid")
        return DROPPED if target == PERMISSIVE_LID else Step(Fate.LID, target, bytes(packet))
    SMP.set(packet, "hop_pointer", count)
    return Step(Fate.PORT, packet[_RETURN + count], bytes(packet))


def _back(packet: bytearray, pointer: int, count: int) -> Step:
    if not 1 <= pointer <= count + 1:
        return DROPPED
    SMP.set(packet, "hop_pointer", pointer - 1)
    if pointer > 1:
        return Step(Fate.PORT, packet[_RETURN + pointer - 1], bytes(packet))
    target = SMP.get(packet, "dr_slid")
    return DROPPED if target == PERMISSIVE_LID else Step(Fate.LID, target, bytes(packet))


class Manager(Protocol):
    """The interface of a subnet manager in a switch, for the switch's agents."""

    def sm_info(self) -> bytes:
        """Return the manager's SMInfo."""

    def administer(self, request: Datagram) -> None:
        """Take a MAD for the subnet administrator."""


class SwitchPort:
    """An external port of a switch, which receives SMPs on a directed route from its cable."""

    def __init__(self, switch: Switch, agent: PortAgent) -> None:
        self.agent = agent
        self._switch = switch

    def receive(self, message: Message) -> int:
        """Receive an SMP on a directed route; all else is ignored."""
        if isinstance(message, Datagram):
            self._switch.smp(message, self.agent.number)
        return 0


class Switch:
    """The switch of a subnet; `manager` is None unless a subnet manager runs in it."""

    def __init__(self, guid: int, ports: int, send: Send) -> None:
        self._send = send
        self.manager: Manager | None = None
        self.repressed: Callable[[], None] = lambda: None  # called for a TrapRepress
        agents = {0: PortAgent(0, guid, guids=ALL_PORTS_GUIDS, pkeys=ALL_PORTS_PKEYS)}
        for number in range(1, ports + 1):
            agents[number] = PortAgent(number, guid, end_port=False, pkeys=ALL_PORTS_PKEYS)
            agents[number].open()
        agents[0].always_up()
        info = SWITCH_INFO.pack(
            linear_capacity=FIRST_GROUP_LID, multicast_capacity=MULTICAST_LIDS,
            life_time=LIFE_TIME, partition_enforcement=ALL_PORTS_PKEYS, enhanced_port0=1,
        )  # fmt: skip
        self.node = Node(SWITCH, guid, DEVICE_SWITCH, agents, DESCRIPTION, info)
        self.ports = {number: SwitchPort(self, agents[number]) for number in agents if number}

    def send_through(self, fabric: Fabric) -> None:
        """Use `fabric` from now on to send: a decorator of the fabric that the switch is in."""
        self._send = fabric.send

    def send(self, message: Message) -> None:
        """Send a message from port 0."""
        self._send(self, message)

    @property
    def agent(self) -> PortAgent:
        """The agent of port 0."""
        return self.node.ports[0]

    def receive(self, message: Message) -> int:
        """Receive a message that is addressed to the switch's own LID."""
        if not isinstance(message, Datagram) or len(message.payload) != MAD_SIZE:
            return 0
        if message.target_qpn == SMI_QPN:
            self.smp(message, 0)
        elif message.target_qpn == GSI_QPN and message.qkey == GSI_QKEY:
            self._general(message)
        return 0

    def smp(self, message: Datagram, ingress: int) -> None:
        """Carry out or forward a subnet management packet that came in at a port."""
        packet = message.payload
        if len(packet) != SMP_SIZE or message.target_qpn != SMI_QPN:
            return
        if message.source_qpn != SMI_QPN:
            return  # a user's queue pair: subnet management is between QP0s
        if SMP.get(packet, "mgmt_class") == MgmtClass.SUBN_DIRECTED:
            self._follow(arrive(packet, ingress), ingress)
        elif SMP.get(packet, "mgmt_class") == MgmtClass.SUBN_LID:
            answer = self._answer(packet, ingress)
            if answer is not None:
                self.send(answer_to(message, answer))

    def _follow(self, step: Step, ingress: int) -> None:
        """Carry an SMP on. One whose way ends with the switch's own LID has arrived here.

        Sent to that LID it would come back without end. An answer that has arrived is
        dropped: nothing in the switch waits for one.
        """
        own = self.agent.lid
        if step.fate is Fate.HERE or (step.fate is Fate.LID and step.where == own):
            answering = SMP.get(step.smp, "status") & DIRECTION
            answer = None if answering else self._answer(step.smp, ingress)
            if answer is not None:
                self._follow(reply(answer), ingress)
        elif step.fate is Fate.PORT:
            if step.where in self.ports and self.ports[step.where].agent.link_up:
                self._send(self.ports[step.where], smp_to(PERMISSIVE, PERMISSIVE, step.smp))
        elif step.fate is Fate.LID:
            self.send(smp_to(lid_bytes(own), lid_bytes(step.where), step.smp))

    def _answer(self, packet: bytes, ingress: int) -> bytes | None:
        get = SMP.get
        if get(packet, "method") == Method.TRAP_REPRESS:
            if self.agent.management_key.admits(packet):
                self.repressed()
            return None
        if get(packet, "attr_id") == SmpAttribute.SM_INFO:
            if self.manager is None or get(packet, "method") != Method.GET:
                return None
            response = bytearray(packet)
            SMP.set(response, "method", int(Method.GET_RESP))
            info = self.manager.sm_info()
            response[SMP_DATA_OFFSET : SMP_DATA_OFFSET + len(info)] = info
            return bytes(response)
        return agents.answer_smp(self.node, ingress, packet)

    def _general(self, message: Datagram) -> None:
        """Process a MAD for QP1: performance management, or the administrator's if there is one."""
        mgmt_class = MAD.get(message.payload, "mgmt_class")
        if mgmt_class == MgmtClass.PERF:
            answer = agents.answer_perf(self.node, 0, message.payload)
            if answer is not None:
                self.send(answer_to(message, answer))
        elif mgmt_class == MgmtClass.SUBN_ADM and self.manager is not None:
            self.manager.administer(message)
