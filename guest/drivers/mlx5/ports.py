"""The Ethernet port: its addresses, RoCE addresses, MTU, steering, link (core/vport.c, en_fs.c)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from bluebridge.device.layout.mlx5.caps import CapGroup
from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.contexts import NIC_VPORT
from bluebridge.device.layout.mlx5.device_commands import ACCESS_REG, REGISTER_WRITE
from bluebridge.device.layout.mlx5.event_queues import PORT_ACTIVE
from bluebridge.device.layout.mlx5.objects import (
    MODIFY_VPORT,
    ROCE_ADDRESS,
    SET_ROCE_ADDRESS,
    VPORT_IN,
    VPORT_STATE,
    AddressList,
    VportField,
)
from bluebridge.device.layout.mlx5.objects import ROCE_V2 as CARD_ROCE_V2
from bluebridge.device.layout.mlx5.port_registers import MTU_OVERHEAD, PAOS, PortAdmin
from bluebridge.device.layout.mlx5.registers import RegisterId
from bluebridge.device.layout.mlx5.steering import (
    CREATE_FLOW_GROUP,
    CREATE_FLOW_TABLE,
    DESTINATION,
    FLOW_TABLE,
    MATCH_BYTES,
    OUTER_HEADERS,
    SET_FLOW_ENTRY,
    SET_FLOW_TABLE_ROOT,
    Action,
    Criteria,
    Destination,
)
from bluebridge.device.layout.net.ip import IPV4_MAPPED, ROCE_V2
from bluebridge.guest.drivers.common.gid_table import MTU, NO_GID, GidTable
from bluebridge.guest.drivers.mlx5.adapter import Adapter
from bluebridge.guest.errors import DeviceLost, VerbsError

NO_TIR: Final = -1
BROADCAST: Final = b"\xff" * 6
_LOG_ENTRIES: Final = 6
_IPV6: Final = 1
_ADDRESS_BYTES: Final = 8


class Port(GidTable):
    """The only port; `mac` replaces the burned-in address. Raises `HcaError` as `GidTable`."""

    number = 1

    def __init__(self, adapter: Adapter, mac: bytes | None) -> None:
        self._adapter = adapter
        self._commands = adapter.commands
        vport = adapter.vport()
        burned = NIC_VPORT.get_raw(vport, "permanent_address")
        frames = NIC_VPORT.get(vport, "mtu") - MTU_OVERHEAD
        most = adapter.capability("roce_address_table_size", CapGroup.ROCE)
        super().__init__(burned if mac is None else mac, min(MTU, frames), most, True)
        self.node_guid = NIC_VPORT.get(vport, "node_guid")
        self._written: list[bytes] = []
        self._table = self._group = -1
        self._steered = NO_TIR
        self._entries = 0

    def start(self) -> None:
        """Program the tables and bring the link up."""
        context = NIC_VPORT.pack(roce=1, list_type=AddressList.UNICAST, list_size=1)
        fields = VportField.ROCE | VportField.ADDRESSES
        address = bytes(_ADDRESS_BYTES - len(self.mac)) + self.mac
        head = bytes(MODIFY_VPORT.pack(fields=fields)).ljust(VPORT_IN, b"\0")
        self._commands.run(Opcode.MODIFY_NIC_VPORT_CONTEXT, head + bytes(context) + address)
        self._write_gids()
        self._administer(PortAdmin.UP)
        self.refresh()

    def stop(self) -> None:
        """Take the link down; a lost device has none."""
        with contextlib.suppress(DeviceLost):
            self._administer(PortAdmin.DOWN)
        self.active = False

    def _link_is_up(self) -> bool:
        data = self._commands.run(Opcode.QUERY_VPORT_STATE, output=VPORT_STATE.size)
        return bool(VPORT_STATE.get(data, "state"))

    def note_event(self, subtype: int) -> None:
        """Update the port's state after a port event of type `subtype`."""
        self.active = subtype == PORT_ACTIVE

    def steer_frames(self, qpn: int, groups: Sequence[bytes] = ()) -> None:
        """Deliver frames to the port's MAC, broadcasts and `groups` to queue pair `qpn`."""
        tir = getattr(self._adapter.queue_pairs.get(qpn), "tir", NO_TIR)
        if tir == NO_TIR:
            raise VerbsError(f"queue pair {qpn:#x} takes no frames")
        addresses = [self.mac, BROADCAST, *groups]
        if len(addresses) > 1 << _LOG_ENTRIES:
            raise VerbsError(f"{len(addresses)} addresses are too many")
        self._make_table()
        self.release(self._steered)
        self._steered, self._entries = tir, len(addresses)
        for index, address in enumerate(addresses):
            self._commands.run(Opcode.SET_FLOW_TABLE_ENTRY, self._entry(index, address, tir))

    def release(self, tir: int) -> None:
        """Deliver no frame to a TIR any more."""
        if tir == NO_TIR or tir != self._steered:
            return
        for index in range(self._entries):
            data = FLOW_TABLE.pack(table=self._table, index=index)
            self._commands.run(Opcode.DELETE_FLOW_TABLE_ENTRY, data)
        self._steered, self._entries = NO_TIR, 0

    def _make_table(self) -> None:
        """Make a table whose one group compares the address that frames are for, and its root."""
        if self._table >= 0:
            return
        data = CREATE_FLOW_TABLE.pack(log_size=_LOG_ENTRIES)
        self._table = self._commands.make(Opcode.CREATE_FLOW_TABLE, data)
        group = CREATE_FLOW_GROUP.pack(
            table=self._table, last=(1 << _LOG_ENTRIES) - 1, criteria=Criteria.OUTER_HEADERS,
            mask=_outer(BROADCAST),
        )  # fmt: skip
        self._group = self._commands.make(Opcode.CREATE_FLOW_GROUP, group)
        root = SET_FLOW_TABLE_ROOT.pack(table=self._table)
        self._commands.run(Opcode.SET_FLOW_TABLE_ROOT, root)

    def _entry(self, index: int, address: bytes, tir: int) -> bytes:
        data = SET_FLOW_ENTRY.pack(
            table=self._table, index=index, group=self._group, action=Action.FORWARD,
            destinations=1, value=_outer(address),
        )  # fmt: skip
        return bytes(data) + bytes(DESTINATION.pack(type=Destination.TIR, number=tir))

    def _write_gids(self) -> None:
        """Write the entries of the table that changed (ib/main.c: set_roce_addr)."""
        for index, gid in enumerate(self.gids):
            if index < len(self._written) and self._written[index] == gid:
                continue
            address = bytes(ROCE_ADDRESS.size)
            if gid != NO_GID:
                v2 = self.roce_version(index) == ROCE_V2
                ipv6 = not gid.startswith(IPV4_MAPPED)
                address = bytes(
                    ROCE_ADDRESS.pack(
                        gid=gid, mac=self.mac, l3_type=_IPV6 * ipv6, version=CARD_ROCE_V2 * v2
                    )
                )
            data = SET_ROCE_ADDRESS.pack(index=index, port=self.number, address=address)
            self._commands.run(Opcode.SET_ROCE_ADDRESS, data)
        self._written = list(self.gids)

    def _administer(self, state: PortAdmin) -> None:
        head = ACCESS_REG.pack(op_mod=REGISTER_WRITE, register=RegisterId.PAOS)
        register = PAOS.pack(port=self.number, admin=state, set_admin=1)
        size = ACCESS_REG.size + PAOS.size
        self._commands.run(Opcode.ACCESS_REG, bytes(head) + bytes(register), output=size)


def _outer(dmac: bytes) -> bytes:
    """Return match parameters with the address that a frame is for."""
    return bytes(OUTER_HEADERS.pack(dmac=dmac)).ljust(MATCH_BYTES, b"\0")
