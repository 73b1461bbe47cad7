"""Events of ports, as entries of event queues (Linux `mlx4/eq.c: mlx4_eq_int`)."""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.subnet.port import Change, PortAgent
from bluebridge.device.layout.mlx4.eqe import (
    DATA_OFFSET,
    OWNER_OFFSET,
    PORT_ACTIVE,
    PORT_DOWN,
    PORT_EQE,
    PORT_MNG_EQE,
    PORT_MNG_GUID_INFO,
    PORT_MNG_PKEY_TABLE,
    PORT_MNG_PORT_INFO,
    EventType,
)
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.rdma.ports.face import PortEvents

ALL_ENTRIES: Final = 0xFFFFFFFF
_PORT_INFO_EVENTS: Final = (
    Change.SM_LID | Change.GID_PREFIX | Change.LID | Change.CLIENT_REREGISTER | Change.SM_SL
)
_TABLE_EVENTS: Final = {Change.PKEYS: PORT_MNG_PKEY_TABLE, Change.GUIDS: PORT_MNG_GUID_INFO}


class PortEventWriter(PortEvents):
    """The writer of the events of all ports of one HCA to event queues."""

    __slots__ = ("_eqs",)

    def __init__(self, eqs: EventQueues) -> None:
        self._eqs = eqs

    def link_changed(self, number: int, *, active: bool) -> None:
        """Post a PORT_CHANGE event."""
        event = bytes(PORT_EQE.pack(port=number)[DATA_OFFSET:-4])
        self._eqs.post_async(EventType.PORT_CHANGE, event, PORT_ACTIVE if active else PORT_DOWN)

    def management_changed(self, agent: PortAgent, change: Change) -> None:
        """Post the events of Linux `ib/mad.c: handle_port_mgmt_change_event`."""
        if change & _PORT_INFO_EVENTS:
            self._post(
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
                self._post(subtype, port=agent.number, changed=ALL_ENTRIES)

    def _post(self, subtype: int, **values: int) -> None:
        event = bytes(PORT_MNG_EQE.pack(values)[DATA_OFFSET:OWNER_OFFSET])
        self._eqs.post_async(EventType.PORT_MNG_CHG, event, subtype)
