"""The switch of a subnet: ports for cables, and a port 0 of its own where management ends.

External ports are `SwitchPort`s; the `Switch` itself is the fabric's port for what is addressed
to its LID: its subnet and performance management agents, and the subnet administrator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bluebridge.device.fabric.interface import Fabric, FabricPort
from bluebridge.device.fabric.messages import Datagram, Message
from bluebridge.device.fabric.subnet import directed, pma, sma
from bluebridge.device.fabric.subnet.directed import Fate, Step
from bluebridge.device.fabric.subnet.node import SWITCH, Node
from bluebridge.device.fabric.subnet.packets import answer_to, smp_to
from bluebridge.device.fabric.subnet.packets import directed as directed_packet
from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.layout.ib.link import FIRST_GROUP_LID
from bluebridge.device.layout.ib.smp import (
    DIRECTION,
    SMP,
    SMP_DATA_OFFSET,
    SMP_SIZE,
    SWITCH_INFO,
    SwitchAttribute,
)
from bluebridge.device.layout.net.mad import MAD, MAD_SIZE, Method, MgmtClass
from bluebridge.device.layout.net.roce import GSI_QKEY, GSI_QPN, SMI_QPN

DEVICE_SWITCH = 0xC738  # SwitchX, the generation of ConnectX-3
DESCRIPTION = b"bluebridge switch"
MULTICAST_LIDS = 0x400
LIFE_TIME = 18
ALL_PORTS_GUIDS, ALL_PORTS_PKEYS = 1, 16

Send = Callable[[FabricPort, Message], int]


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
        self.node = Node(SWITCH, guid, DEVICE_SWITCH, agents, DESCRIPTION)
        set_info, info = SWITCH_INFO.set, self.node.switch_info
        set_info(info, "linear_capacity", FIRST_GROUP_LID)
        set_info(info, "multicast_capacity", MULTICAST_LIDS)
        set_info(info, "life_time", LIFE_TIME)
        set_info(info, "partition_enforcement", ALL_PORTS_PKEYS)
        set_info(info, "enhanced_port0", 1)
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
            self._follow(directed.arrive(packet, ingress), ingress)
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
                self._follow(directed.reply(answer), ingress)
        elif step.fate is Fate.PORT:
            if step.where in self.ports and self.ports[step.where].agent.link_up:
                self._send(self.ports[step.where], directed_packet(step.smp))
        elif step.fate is Fate.LID:
            self.send(smp_to(own.to_bytes(2, "big"), step.where.to_bytes(2, "big"), step.smp))

    def _answer(self, packet: bytes, ingress: int) -> bytes | None:
        get = SMP.get
        if get(packet, "method") == Method.TRAP_REPRESS:
            if self.agent.management_key.admits(packet):
                self.repressed()
            return None
        if get(packet, "attr_id") == SwitchAttribute.SM_INFO:
            if self.manager is None or get(packet, "method") != Method.GET:
                return None
            response = bytearray(packet)
            SMP.set(response, "method", int(Method.GET_RESP))
            info = self.manager.sm_info()
            response[SMP_DATA_OFFSET : SMP_DATA_OFFSET + len(info)] = info
            return bytes(response)
        return sma.answer_smp(self.node, ingress, packet)

    def _general(self, message: Datagram) -> None:
        """Process a MAD for QP1: performance management, or the administrator's if there is one."""
        mgmt_class = MAD.get(message.payload, "mgmt_class")
        if mgmt_class == MgmtClass.PERF:
            answer = pma.answer_perf(self.node, 0, message.payload)
            if answer is not None:
                self.send(answer_to(message, answer))
        elif mgmt_class == MgmtClass.SUBN_ADM and self.manager is not None:
            self.manager.administer(message)
