"""The traps by which a switch tells a subnet manager elsewhere that a link changed its state.

Rules: InfiniBand vol. 1, 13.4.9 and 14.3.1: a trap is sent again until the manager represses it.
"""

from __future__ import annotations

from bluebridge.device.fabric.addresses import lid_bytes
from bluebridge.device.fabric.subnet.fabric import InfinibandFabric, Later
from bluebridge.device.fabric.subnet.packets import smp_to
from bluebridge.device.fabric.subnet.port import Change, PortAgent
from bluebridge.device.layout.ib.link import LINK_DOWN, LINK_INIT
from bluebridge.device.layout.ib.smp import (
    NOTICE,
    NOTICE_128_LID,
    NOTICE_URGENT,
    SMP,
    TRAP_LINK_STATE,
    SwitchAttribute,
)
from bluebridge.device.layout.net.mad import Method, MgmtClass

REPEAT_SECONDS = 1.0
ATTEMPTS = 5
PRODUCER_SWITCH = 2


class TrapSender:
    """The sender of trap 128 for the switch's ports, to the subnet manager that port 0 knows."""

    def __init__(self, fabric: InfinibandFabric, later: Later) -> None:
        self._fabric = fabric
        self._later = later
        self._tid = 0
        self._left = 0
        fabric.switch.repressed = self.repressed
        fabric.watchers.append(self)

    def changed(self, agent: PortAgent, change: Change) -> None:
        """Send a trap when a link came up or went down, not when a manager set its state."""
        own = agent.number and self._fabric.switch.node.ports.get(agent.number) is agent
        if own and change & Change.STATE and agent.state in (LINK_DOWN, LINK_INIT):
            self._tid += 1
            self._left = ATTEMPTS
            self._send(self._tid)

    def left(self, agent: PortAgent) -> None:
        """Do nothing for a port that was detached: its link state has already caused a trap."""

    def repressed(self) -> None:
        """Stop repeating a trap that the manager has repressed."""
        self._left = 0

    def _send(self, tid: int) -> None:
        own = self._fabric.switch.agent
        manager = own.get("sm_lid")
        if tid != self._tid or not self._left or not manager:
            return  # a newer trap has replaced it, it was repressed, or there is no manager
        self._left -= 1
        trap = smp_to(lid_bytes(own.lid), lid_bytes(manager), _link_state(own.lid, tid))
        self._fabric.switch.send(trap)
        self._later(REPEAT_SECONDS, lambda: self._send(tid))


def _link_state(lid: int, tid: int) -> bytes:
    notice = NOTICE.pack(
        generic=1,
        type=NOTICE_URGENT,
        producer=PRODUCER_SWITCH,
        trap=TRAP_LINK_STATE,
        issuer_lid=lid,
    )
    notice[NOTICE_128_LID : NOTICE_128_LID + 2] = lid_bytes(lid)
    return bytes(
        SMP.pack(
            base_version=1,
            mgmt_class=int(MgmtClass.SUBN_LID),
            class_version=1,
            method=int(Method.TRAP),
            tid=tid,
            attr_id=int(SwitchAttribute.NOTICE),
            data=bytes(notice),
        )
    )
