"""How an InfiniBand port reports changes: events for its driver, traps for the subnet manager."""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.addresses import lid_bytes
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.fabric.subnet.packets import smp_to
from bluebridge.device.fabric.subnet.port import Change, PortAgent
from bluebridge.device.layout.ib.smp import (
    NOTICE,
    NOTICE_144_CAPABILITIES,
    NOTICE_144_LID,
    NOTICE_INFO,
    SMP,
    TRAP_CAPABILITY,
    SwitchAttribute,
)
from bluebridge.device.layout.mlx4.eqe import (
    DATA_OFFSET,
    OWNER_OFFSET,
    PORT_MNG_EQE,
    PORT_MNG_GUID_INFO,
    PORT_MNG_PKEY_TABLE,
    PORT_MNG_PORT_INFO,
    EventType,
)
from bluebridge.device.layout.net.mad import Method, MgmtClass
from bluebridge.device.mlx4.rings.event_queues import EventQueues

PRODUCER_ADAPTER: Final = 1
ALL_ENTRIES: Final = 0xFFFFFFFF

_PORT_INFO_EVENTS: Final = (
    Change.SM_LID | Change.GID_PREFIX | Change.LID | Change.CLIENT_REREGISTER | Change.SM_SL
)
_TABLE_EVENTS: Final = {Change.PKEYS: PORT_MNG_PKEY_TABLE, Change.GUIDS: PORT_MNG_GUID_INFO}


def management_events(eqs: EventQueues, agent: PortAgent, change: Change) -> None:
    """The events of Linux `ib/mad.c: handle_port_mgmt_change_event` for what a manager changed."""
    if change & _PORT_INFO_EVENTS:
        _post(
            eqs,
            PORT_MNG_PORT_INFO,
            port=agent.number,
            sm_lid=agent.get("sm_lid"),
            lid=agent.lid,
            changed=int(change & _PORT_INFO_EVENTS),
            sm_sl=agent.get("sm_sl"),
            gid_prefix=agent.get("gid_prefix"),
        )
    for kind, subtype in _TABLE_EVENTS.items():
        if change & kind:
            _post(eqs, subtype, port=agent.number, changed=ALL_ENTRIES)


def _post(eqs: EventQueues, subtype: int, **values: int) -> None:
    event = bytes(PORT_MNG_EQE.pack(values)[DATA_OFFSET:OWNER_OFFSET])
    eqs.post_async(EventType.PORT_MNG_CHG, event, subtype)


def capability_trap(agent: PortAgent) -> Datagram:
    """Trap 144 to the subnet manager: the capability mask changed."""
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
