"""The trap that tells the subnet manager of a port's new capabilities."""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.addresses import lid_bytes
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.fabric.subnet.packets import smp_to
from bluebridge.device.fabric.subnet.port import PortAgent
from bluebridge.device.layout.ib.smp import (
    NOTICE,
    NOTICE_144_CAPABILITIES,
    NOTICE_144_LID,
    NOTICE_INFO,
    SMP,
    TRAP_CAPABILITY,
    SwitchAttribute,
)
from bluebridge.device.layout.net.mad import Method, MgmtClass

PRODUCER_ADAPTER: Final = 1


def capability_trap(agent: PortAgent) -> Datagram:
    """Return trap 144, which tells the subnet manager of a changed capability mask."""
    notice = NOTICE.pack(
        generic=1,
        type=NOTICE_INFO,
        producer=PRODUCER_ADAPTER,
        trap=TRAP_CAPABILITY,
        issuer_lid=agent.lid,
    )
    notice[NOTICE_144_LID : NOTICE_144_LID + 2] = lid_bytes(agent.lid)
    end = NOTICE_144_CAPABILITIES + 4
    notice[NOTICE_144_CAPABILITIES:end] = agent.capabilities.to_bytes(4, "big")
    smp = SMP.pack(
        base_version=1,
        mgmt_class=int(MgmtClass.SUBN_LID),
        class_version=1,
        method=int(Method.TRAP),
        attr_id=int(SwitchAttribute.NOTICE),
        data=bytes(notice),
    )
    return smp_to(lid_bytes(agent.lid), lid_bytes(agent.get("sm_lid")), bytes(smp))
