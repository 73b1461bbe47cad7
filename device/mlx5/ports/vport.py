"""The virtual port: its context as drivers read and change it, its addresses and state.

Linux `core/vport.c`, `core/en_fs.c: mlx5e_vport_context_update`.
"""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.subnet.port import Change, PortAgent
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.contexts import NIC_VPORT
from bluebridge.device.layout.mlx5.event_queues import (
    DATA_BYTES,
    DATA_OFFSET,
    PORT_ACTIVE,
    PORT_DOWN,
    PORT_EQE,
    EventType,
)
from bluebridge.device.layout.mlx5.objects import AddressList, VportField
from bluebridge.device.mlx5.ports.roce_addresses import OwnAddresses
from bluebridge.device.mlx5.rings.event_queues import EventQueues
from bluebridge.device.mlx5.rings.frame_queues import MAX_FRAME
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.rdma.ports.face import PortEvents
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.work import FrameWork

FCS_BYTES: Final = 4
MAX_MTU: Final = MAX_FRAME + FCS_BYTES
"""Largest MTU of port and virtual port, with 22 bytes of Ethernet (`MTU_OVERHEAD`)."""
DEFAULT_MTU: Final = 1522
MOST_ENTRIES: Final = {
    AddressList.UNICAST: 1 << 7,
    AddressList.MULTICAST: 1 << 11,
    AddressList.VLAN: 1 << 12,
}
ENTRY_BYTES: Final = {AddressList.UNICAST: 8, AddressList.MULTICAST: 8, AddressList.VLAN: 4}
_PROMISCUOUS: Final = ("promiscuous_unicast", "promiscuous_multicast", "promiscuous")
_FIELDS: Final = {
    VportField.ROCE: ("roce",),
    VportField.PROMISCUOUS: _PROMISCUOUS,
    VportField.EVENTS: ("events",),
    VportField.MIN_INLINE: ("min_inline_mode",),
    VportField.PORT_GUID: ("port_guid",),
    VportField.NODE_GUID: ("node_guid",),
    VportField.MULTICAST_LOOPBACK: ("no_multicast_loopback",),
    VportField.UNICAST_LOOPBACK: ("no_unicast_loopback",),
}


class Vport:
    """The virtual port of one adapter over its `port`; `guid` is that of the node."""

    def __init__(self, port: Port, sources: OwnAddresses, guid: int) -> None:
        self._port = port
        self._sources = sources
        self._guid = guid
        self.reset()

    def reset(self) -> None:
        """Return to the state after power-on."""
        self.context = NIC_VPORT.pack(
            mtu=DEFAULT_MTU,
            system_image_guid=self._guid,
            port_guid=self._guid,
            node_guid=self._guid,
            permanent_address=self._port.burned_in,
        )
        self.lists: dict[AddressList, bytes] = dict.fromkeys(AddressList, b"")
        self.roce = False
        """Whether software has switched RoCE on, as the context has it."""

    def comes_back(self, port: Port, work: FrameWork, frame: bytes) -> tuple[bool, bool]:
        """Return whether a sent frame goes to its own port only, and whether there and out.

        One to an address of the port does not leave, one to a group does both, unless loopback is
        off. Which receivers take it their TIRs say (`device.mlx5.steering.receiver`). Linux
        `core/en_selftest.c: mlx5e_test_loopback`, `ib/main.c: mlx5_ib_enable_lb`.
        """
        if frame[0] & 1:
            return False, not NIC_VPORT.get(self.context, "no_multicast_loopback")
        own = frame[:6] in port.mac_addresses
        return own and not NIC_VPORT.get(self.context, "no_unicast_loopback"), False

    def query(self, kind: int) -> bytes:
        """Return the context with a list of addresses or VLANs; raises `Refused`."""
        listed = _list_of(kind)
        entries = self.lists[listed]
        context = bytearray(self.context)
        NIC_VPORT.set(context, "list_type", listed)
        NIC_VPORT.set(context, "list_size", len(entries) // ENTRY_BYTES[listed])
        return bytes(context) + entries

    def modify(self, fields: int, context: bytes) -> None:
        """Take over the chosen fields of a context; raises `Refused`, and nothing has changed then.

        BAD_PARAM for an MTU or a list that is too large.
        """
        get = NIC_VPORT.get
        mtu = get(context, "mtu")
        if fields & VportField.MTU and mtu > MAX_MTU:
            raise Refused(Status.BAD_PARAM, f"an MTU of {mtu} bytes")
        if fields & VportField.ADDRESSES:
            self._store_list(context)
        if fields & VportField.MTU:
            NIC_VPORT.set(self.context, "mtu", mtu)
        if fields & VportField.PERMANENT_ADDRESS:
            address = NIC_VPORT.get_raw(context, "permanent_address")
            NIC_VPORT.set(self.context, "permanent_address", address)
        for field, names in _FIELDS.items():
            if fields & field:
                for name in names:
                    NIC_VPORT.set(self.context, name, get(context, name))
        self.roce = bool(NIC_VPORT.get(self.context, "roce"))

    def _store_list(self, context: bytes) -> None:
        kind = _list_of(NIC_VPORT.get(context, "list_type"))
        count = NIC_VPORT.get(context, "list_size")
        entries = context[NIC_VPORT.size : NIC_VPORT.size + count * ENTRY_BYTES[kind]]
        if count > MOST_ENTRIES[kind] or len(entries) < count * ENTRY_BYTES[kind]:
            raise Refused(Status.BAD_PARAM, f"a list of {count} entries")
        self.lists[kind] = entries
        if kind is AddressList.UNICAST:
            addresses = [entries[at + 2 : at + 8] for at in range(0, len(entries), 8)]
            self._sources.macs = [address for address in addresses if not address[0] & 1]
            self._port.sources_changed()


def _list_of(kind: int) -> AddressList:
    try:
        return AddressList(kind)
    except ValueError:
        raise Refused(Status.BAD_PARAM, f"no list of type {kind}") from None


class LinkEvents(PortEvents):
    """The writer of events about the link; drivers then ask for the state of the virtual port."""

    def __init__(self, eqs: EventQueues) -> None:
        self._eqs = eqs

    def link_changed(self, number: int, *, active: bool) -> None:
        eqe = PORT_EQE.pack(port=number)
        data = bytes(eqe[DATA_OFFSET : DATA_OFFSET + DATA_BYTES])
        if self._eqs.takes(EventType.PORT_CHANGE):
            self._eqs.post_async(EventType.PORT_CHANGE, data, PORT_ACTIVE if active else PORT_DOWN)

    def management_changed(self, agent: PortAgent, change: Change) -> None:
        """Do nothing: ports of Ethernet have no subnet manager."""
