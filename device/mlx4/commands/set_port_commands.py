"""The command SET_PORT with its forms: tables, MTU, steering (Linux `mlx4/port.c`, `en_port.c`)."""

from __future__ import annotations

from collections.abc import Callable

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.layout.mlx4.capabilities import (
    GID_TABLE_ENTRIES,
    MAC_TABLE_ENTRIES,
    MAC_VALID,
    SET_PORT_GENERAL,
    SET_PORT_RQP_CALC,
    VLAN_TABLE_ENTRIES,
    VLAN_VALID,
)
from bluebridge.device.layout.mlx4.commands import Opcode, SetPort, Status
from bluebridge.device.layout.mlx4.ports import ROCE_ADDRESS, ROCE_ADDRESS_SIZE, SET_PORT_IB
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.ports.properties import set_capabilities
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.rdma.ports.port import MAX_MTU, Port
from bluebridge.device.rdma.ports.port_tables import Steering

FORM_IB, FORM_ETHERNET = 0, 1
GENERAL_MTU_VALID, GENERAL_PPRX_VALID, GENERAL_PPTX_VALID = 1, 2, 4
PAUSE_ON = 1 << 7
ETHERNET_OVERHEAD = 26  # header, two VLAN tags, FCS: what software adds to its MTU


def set_port(adapter: Adapter, command: Command) -> None:
    """Carry out the form of SET_PORT in op modifier 1 and bits 15:8 of the input modifier."""
    port = adapter.port_of(command.in_modifier & 0xFF)
    if command.op_modifier == FORM_IB:
        set_capabilities(port, command.mailbox(SET_PORT_IB.size))
        return
    form = _FORMS.get(command.in_modifier >> 8 & 0xFF)
    if command.op_modifier != FORM_ETHERNET or form is None or port.link is not LinkLayer.ETHERNET:
        raise CommandError(Status.BAD_OP, f"sub-form {command.in_modifier >> 8:#x}")
    form(port, command)


def _general(port: Port, command: Command) -> None:
    mailbox = command.mailbox(SET_PORT_GENERAL.size)
    if SET_PORT_GENERAL.get(mailbox, "flags") & GENERAL_MTU_VALID:
        mtu = SET_PORT_GENERAL.get(mailbox, "mtu")
        if mtu > MAX_MTU + ETHERNET_OVERHEAD:
            raise CommandError(Status.BAD_PARAM, f"MTU {mtu}")
        port.tables.mtu = mtu
    flags = SET_PORT_GENERAL.get(mailbox, "flags")
    if flags & GENERAL_PPRX_VALID:
        port.flow.obeys = bool(SET_PORT_GENERAL.get(mailbox, "pprx") & PAUSE_ON)
    if flags & GENERAL_PPTX_VALID:
        port.flow.sends = bool(SET_PORT_GENERAL.get(mailbox, "pptx") & PAUSE_ON)


def _rqp_calc(port: Port, command: Command) -> None:
    mailbox = command.mailbox(SET_PORT_RQP_CALC.size)
    get = SET_PORT_RQP_CALC.get
    port.steering = Steering(
        unicast=get(mailbox, "base_qpn") & 0xFFFFFF,
        multicast=get(mailbox, "mcast_qpn"),
        promiscuous=get(mailbox, "promisc_qpn") if get(mailbox, "promisc_enable") else None,
    )


def _mac_table(port: Port, command: Command) -> None:
    mailbox = command.mailbox(MAC_TABLE_ENTRIES * 8)
    words = (int.from_bytes(mailbox[at : at + 8], "big") for at in range(0, len(mailbox), 8))
    port.set_macs(
        [(word & (1 << 48) - 1).to_bytes(6, "big") if word & MAC_VALID else None for word in words]
    )


def _vlan_table(port: Port, command: Command) -> None:
    mailbox = command.mailbox(VLAN_TABLE_ENTRIES * 4)
    words = (int.from_bytes(mailbox[at : at + 4], "big") for at in range(0, len(mailbox), 4))
    port.set_vlans([word & 0xFFF if word & VLAN_VALID else None for word in words])


def _gid_table(port: Port, command: Command) -> None:
    mailbox = command.mailbox(GID_TABLE_ENTRIES * 16)
    port.set_gids([mailbox[at : at + 16] for at in range(0, len(mailbox), 16)])


def _roce_addresses(port: Port, command: Command) -> None:
    mailbox = command.mailbox(GID_TABLE_ENTRIES * ROCE_ADDRESS_SIZE)
    starts = range(0, len(mailbox), ROCE_ADDRESS_SIZE)
    port.set_gids(
        [ROCE_ADDRESS.get_raw(mailbox, "gid", at) for at in starts],
        [2 if ROCE_ADDRESS.get(mailbox, "version", at) == 2 else 1 for at in starts],
    )


def _accept(port: Port, command: Command) -> None:
    """Accept priorities and change nothing: with one traffic class any assignment is right."""


_FORMS: dict[int, Callable[[Port, Command], None]] = {
    SetPort.GENERAL: _general,
    SetPort.RQP_CALC: _rqp_calc,
    SetPort.MAC_TABLE: _mac_table,
    SetPort.VLAN_TABLE: _vlan_table,
    SetPort.PRIO_MAP: _accept,
    SetPort.GID_TABLE: _gid_table,
    SetPort.PRIO2TC: _accept,
    SetPort.ROCE_ADDR: _roce_addresses,
}

RULES: dict[int, Rule] = {Opcode.SET_PORT: Rule(set_port)}
