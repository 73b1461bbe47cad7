"""The Ethernet port: MAC and GID tables, MTU, steering, link (core/port.c, core/en_port.c)."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bluebridge.device.layout.fields import Value
from bluebridge.device.layout.mlx4.capabilities import (
    GENERAL_MODE_VALID,
    GENERAL_ROCE_V1_V2,
    GID_TABLE_ENTRIES,
    MAC_TABLE_ENTRIES,
    MAC_VALID,
    QUERY_PORT,
    SET_PORT_GENERAL,
    SET_PORT_RQP_CALC,
)
from bluebridge.device.layout.mlx4.commands import Opcode, SetPort
from bluebridge.device.layout.mlx4.eqe import PORT_ACTIVE
from bluebridge.device.layout.mlx4.ports import ROCE_ADDRESS, ROCE_ADDRESS_SIZE
from bluebridge.device.layout.net.ip import IPV4_MAPPED, ROCE_V2
from bluebridge.guest.drivers.common.gid_table import MTU, GidTable
from bluebridge.guest.drivers.common.health import HcaError
from bluebridge.guest.drivers.hca.resources.commands import FirmwareCommands

_ETHERNET_FORM = 1  # op modifier of SET_PORT
_MTU_AND_PAUSE_VALID = 7
_FRAME_EXTRA = 26  # Ethernet header, VLAN tag twice, FCS: 1500 becomes 1526
_MCAST_DIRECT = 1
_FILTER_CONFIG, _FILTER_DISABLE, _FILTER_ENABLE = 0, 1, 2
_FILTER_CLEAR = 1 << 63
_BROADCAST = (1 << 48) - 1


class Port(GidTable):
    """Port `number`, from 1 on; `mac` replaces the burned-in address.

    `roce_v2` says whether the adapter speaks RoCE v2, as the ConnectX-3 Pro does. Raises `HcaError`
    when the port is not Ethernet or `mac` is not a valid address of a port.
    """

    def __init__(
        self, commands: FirmwareCommands, mac: bytes | None, number: int = 1, roce_v2: bool = False
    ) -> None:
        self.number = number
        self._commands = commands
        data = commands.query(Opcode.QUERY_PORT, number)
        if not QUERY_PORT.get(data, "supported_types") & 2:
            raise HcaError("the port is not an Ethernet port")
        burned = (QUERY_PORT.get(data, "mac") & _BROADCAST).to_bytes(6, "big")
        eth_mtu = min(MTU, QUERY_PORT.get(data, "eth_mtu"))
        super().__init__(burned if mac is None else mac, eth_mtu, GID_TABLE_ENTRIES, roce_v2)

    def start(self) -> None:
        """Program the tables and bring the link up."""
        general = SET_PORT_GENERAL.pack(
            flags=_MTU_AND_PAUSE_VALID | GENERAL_MODE_VALID * self.roce_v2,
            roce_mode=GENERAL_ROCE_V1_V2 * self.roce_v2,
            mtu=self.eth_mtu + _FRAME_EXTRA,
        )
        self._set(SetPort.GENERAL, general)
        entry = MAC_VALID | int.from_bytes(self.mac, "big")
        self._set(SetPort.MAC_TABLE, struct.pack(f">{MAC_TABLE_ENTRIES}Q", entry, *[0] * 127))
        self._write_gids()
        self._commands.run(Opcode.INIT_PORT, self.number)
        self.refresh()

    def stop(self) -> None:
        """Take the link down."""
        self._commands.run(Opcode.CLOSE_PORT, self.number)
        self.active = False

    def _link_is_up(self) -> bool:
        data = self._commands.query(Opcode.QUERY_PORT, self.number)
        return bool(QUERY_PORT.get(data, "link_up"))

    def note_event(self, subtype: int) -> None:
        """Update the port's state after a port event of type `subtype`."""
        self.active = subtype == PORT_ACTIVE

    def steer_frames(self, qpn: int, groups: Sequence[bytes] = ()) -> None:
        """Deliver frames to the port's MAC, broadcasts and `groups` to queue pair `qpn`."""
        calc = SET_PORT_RQP_CALC.pack(
            base_qpn=qpn,
            log_macs=7,
            log_vlans=7,
            promisc_qpn=qpn,
            mcast_mode=_MCAST_DIRECT,
            mcast_qpn=qpn,
        )
        self._set(SetPort.RQP_CALC, calc)
        run = self._commands.run
        run(Opcode.SET_MCAST_FLTR, self.number, _FILTER_DISABLE)
        run(Opcode.SET_MCAST_FLTR, self.number, _FILTER_CONFIG, param=_FILTER_CLEAR | _BROADCAST)
        for group in groups:
            address = int.from_bytes(group, "big")
            run(Opcode.SET_MCAST_FLTR, self.number, _FILTER_CONFIG, param=address)
        run(Opcode.SET_MCAST_FLTR, self.number, _FILTER_ENABLE)

    def _write_gids(self) -> None:
        if self.roce_v2:
            self._write_roce_addresses()
            return
        table = b"".join(self.gids)
        self._set(SetPort.GID_TABLE, table + bytes(16 * GID_TABLE_ENTRIES - len(table)))

    def _write_roce_addresses(self) -> None:
        """Write the table with versions (ib/main.c: mlx4_ib_update_gids_v1_v2)."""
        table = bytearray(ROCE_ADDRESS_SIZE * GID_TABLE_ENTRIES)
        for index, gid in enumerate(self.gids):
            version = self.roce_version(index)
            entry: dict[str, Value] = {"gid": gid}
            if version == ROCE_V2:
                entry |= {"version": version, "type": int(not gid.startswith(IPV4_MAPPED))}
            start = index * ROCE_ADDRESS_SIZE
            table[start : start + ROCE_ADDRESS_SIZE] = ROCE_ADDRESS.pack(entry)
        self._set(SetPort.ROCE_ADDR, table)

    def _set(self, form: SetPort, data: bytes | bytearray) -> None:
        self._commands.run(Opcode.SET_PORT, form << 8 | self.number, _ETHERNET_FORM, data=data)
