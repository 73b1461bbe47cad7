"""Commands on ports: link, properties, tables, filters, counters, special queue pairs.

Linux `mlx4/port.c`, `en_port.c`, `mlx4/fw.c: mlx4_ACCESS_REG, mlx4_config_dev_retrieval`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import unpack

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.layout.mlx4.capabilities import (
    GID_TABLE_ENTRIES,
    MAC_TABLE_ENTRIES,
    MAC_VALID,
    QUERY_PORT,
    SET_PORT_GENERAL,
    SET_PORT_RQP_CALC,
    VLAN_TABLE_ENTRIES,
    VLAN_VALID,
)
from bluebridge.device.layout.mlx4.commands import MODIFIER_RESET_COUNTER, Opcode, SetPort, Status
from bluebridge.device.layout.mlx4.ports import (
    ACCESS_REG,
    CONFIG_DEV,
    CONFIG_DEV_ROCE_PORT,
    PTYS,
    PTYS_ETHERNET,
    PTYS_ID,
    ROCE_ADDRESS,
    ROCE_ADDRESS_SIZE,
    SET_PORT_IB,
    LinkMode,
)
from bluebridge.device.layout.net.ip import ROCE_PORT
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.ports.port_tables import PortTables, Receivers
from bluebridge.device.mlx4.ports.reports import (
    LINK_MODES,
    ethernet_statistics,
    flow_statistics,
    interface_statistics,
    link_modes,
    properties,
    set_capabilities,
    set_special_base,
)
from bluebridge.device.mlx4.settings.capabilities import INTERFACE_COUNTERS, MAX_MTU
from bluebridge.device.mlx4.settings.parameters import CommandError, HighRate
from bluebridge.device.rdma.ports.counters import FrameCounters
from bluebridge.device.rdma.ports.port import Port

HIGH_RATES = (HighRate.DYNAMIC, HighRate.STATIC)
MCAST_CONFIG, MCAST_DISABLE, MCAST_ENABLE = 0, 1, 2
MCAST_FLUSH = 1 << 63
STATS_RESET = 1 << 8
STATS_FLOW_CONTROL = 1 << 12

FORM_IB, FORM_ETHERNET = 0, 1
GENERAL_MTU_VALID, GENERAL_PPRX_VALID, GENERAL_PPTX_VALID = 1, 2, 4
PAUSE_ON = 1 << 7
ETHERNET_OVERHEAD = 26  # header, two VLAN tags, FCS: what software adds to its MTU

_QUERY, _WRITE = 1, 2

_SET, _GET = 0, 1
RX_CHECKSUM_MODE = 0x22
"""Checksum mode of both ports: a verdict on TCP and UDP, the sum of other packets."""


def query_port(adapter: Adapter, command: Command) -> bytes:
    """Return the properties of a port."""
    parameters, port = adapter.parameters, adapter.port_of(command.in_modifier)
    return bytes(
        QUERY_PORT.pack(
            properties(port, adapter.tables_of(port)),
            high_rate_steering=parameters.flow_steering and parameters.high_rate in HIGH_RATES,
        )
    )


def init_port(adapter: Adapter, command: Command) -> None:
    """Bring the link up."""
    adapter.port_of(command.in_modifier).open()


def close_port(adapter: Adapter, command: Command) -> None:
    """Take the link down; always succeeds."""
    if 1 <= command.in_modifier <= len(adapter.ports):
        adapter.port_of(command.in_modifier).close()


def set_vlan_filter(adapter: Adapter, command: Command) -> None:
    """Set the VLAN filter of a port: a bitmap of VLAN ids, last word first."""
    port = adapter.port_of(command.in_modifier)
    adapter.tables_of(port).vlan_filter = command.mailbox(VLAN_TABLE_ENTRIES * 4)


def set_multicast_filter(adapter: Adapter, command: Command) -> None:
    """Add the address in the immediate input to a filter; bit 63 empties the list first."""
    port = adapter.port_of(command.in_modifier & 0xFF)
    tables = adapter.tables_of(port)
    if command.op_modifier == MCAST_CONFIG:
        if command.in_param & MCAST_FLUSH:
            tables.multicast_filter.clear()
        address = command.in_param & ((1 << 48) - 1)
        if address:
            tables.filter_multicast(address.to_bytes(6, "big"))
    elif command.op_modifier in (MCAST_DISABLE, MCAST_ENABLE):
        tables.multicast_filter_on = command.op_modifier == MCAST_ENABLE
    else:
        raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")


def dump_eth_stats(adapter: Adapter, command: Command) -> bytes:
    """Return a port's counters; bit 8 zeroes them afterwards, bit 12 asks for pause counters."""
    port = adapter.port_of(command.in_modifier & 0xFF)
    if command.in_modifier & STATS_FLOW_CONTROL:
        return flow_statistics(port.flow)
    tables = port.tables
    answer = ethernet_statistics(tables.counters)
    if command.in_modifier & STATS_RESET:
        tables.counters = FrameCounters()
    return answer


def conf_special_qp(adapter: Adapter, command: Command) -> None:
    """Set the first of the eight special QP numbers, a multiple of eight; 0 removes them."""
    base = command.in_modifier
    if base & 7 or base >> adapter.parameters.log_qps:
        raise CommandError(Status.BAD_PARAM, f"special QPs at {base:#x}")
    for port in adapter.ports:
        set_special_base(port, base)


def sense_port(adapter: Adapter, command: Command) -> int:
    """Return the kind of the cable's other end: the port's own kind, or 0 without a cable."""
    port = adapter.port_of(command.in_modifier)
    return properties(port, adapter.tables_of(port))["supported_types"] if port.cable else 0


def set_node(adapter: Adapter, command: Command) -> None:
    """Set a new node description."""
    adapter.node.description = command.mailbox(64)


def set_port(adapter: Adapter, command: Command) -> None:
    """Carry out the form of SET_PORT in op modifier 1 and bits 15:8 of the input modifier."""
    port = adapter.port_of(command.in_modifier & 0xFF)
    if command.op_modifier == FORM_IB:
        set_capabilities(port, adapter.tables_of(port), command.mailbox(SET_PORT_IB.size))
        return
    form = _FORMS.get(command.in_modifier >> 8 & 0xFF)
    if command.op_modifier != FORM_ETHERNET or form is None or port.link is not LinkLayer.ETHERNET:
        raise CommandError(Status.BAD_OP, f"sub-form {command.in_modifier >> 8:#x}")
    form(port, adapter.tables_of(port), command)


def _general(port: Port, tables: PortTables, command: Command) -> None:
    mailbox = command.mailbox(SET_PORT_GENERAL.size)
    flags = SET_PORT_GENERAL.get(mailbox, "flags")
    if flags & GENERAL_MTU_VALID:
        mtu = SET_PORT_GENERAL.get(mailbox, "mtu")
        if mtu > MAX_MTU + ETHERNET_OVERHEAD:
            raise CommandError(Status.BAD_PARAM, f"MTU {mtu}")
        tables.mtu = mtu
    if flags & GENERAL_PPRX_VALID:
        port.flow.obeys = bool(SET_PORT_GENERAL.get(mailbox, "pprx") & PAUSE_ON)
    if flags & GENERAL_PPTX_VALID:
        port.flow.sends = bool(SET_PORT_GENERAL.get(mailbox, "pptx") & PAUSE_ON)


def _rqp_calc(port: Port, tables: PortTables, command: Command) -> None:
    mailbox = command.mailbox(SET_PORT_RQP_CALC.size)
    get = SET_PORT_RQP_CALC.get
    tables.receivers = Receivers(
        unicast=get(mailbox, "base_qpn") & 0xFFFFFF,
        multicast=get(mailbox, "mcast_qpn"),
        promiscuous=get(mailbox, "promisc_qpn") if get(mailbox, "promisc_enable") else None,
    )


def _mac_table(port: Port, tables: PortTables, command: Command) -> None:
    words = unpack(f">{MAC_TABLE_ENTRIES}Q", command.mailbox(MAC_TABLE_ENTRIES * 8))
    tables.macs = [
        (word & ((1 << 48) - 1)).to_bytes(6, "big") if word & MAC_VALID else None for word in words
    ]
    port.sources_changed()


def _vlan_table(port: Port, tables: PortTables, command: Command) -> None:
    words = unpack(f">{VLAN_TABLE_ENTRIES}I", command.mailbox(VLAN_TABLE_ENTRIES * 4))
    tables.vlans = [word & 0xFFF if word & VLAN_VALID else None for word in words]


def _gid_table(port: Port, tables: PortTables, command: Command) -> None:
    mailbox = command.mailbox(GID_TABLE_ENTRIES * 16)
    tables.gids = [mailbox[at : at + 16] for at in range(0, len(mailbox), 16)]
    tables.versions = ()
    port.sources_changed()


def _roce_addresses(port: Port, tables: PortTables, command: Command) -> None:
    mailbox = command.mailbox(GID_TABLE_ENTRIES * ROCE_ADDRESS_SIZE)
    starts = range(0, len(mailbox), ROCE_ADDRESS_SIZE)
    tables.gids = [ROCE_ADDRESS.get_raw(mailbox, "gid", at) for at in starts]
    tables.versions = [2 if ROCE_ADDRESS.get(mailbox, "version", at) == 2 else 1 for at in starts]
    port.sources_changed()


def _accept(port: Port, tables: PortTables, command: Command) -> None:
    """Accept priorities and change nothing: with one traffic class any assignment is right."""


_FORMS: dict[int, Callable[[Port, PortTables, Command], None]] = {
    SetPort.GENERAL: _general,
    SetPort.RQP_CALC: _rqp_calc,
    SetPort.MAC_TABLE: _mac_table,
    SetPort.VLAN_TABLE: _vlan_table,
    SetPort.PRIO_MAP: _accept,
    SetPort.GID_TABLE: _gid_table,
    SetPort.PRIO2TC: _accept,
    SetPort.ROCE_ADDR: _roce_addresses,
}


def query_if_stat(adapter: Adapter, command: Command) -> bytes:
    """Return one counter (QUERY_IF_STAT); bit 31 of the input modifier zeroes it."""
    index = command.in_modifier & ~MODIFIER_RESET_COUNTER
    if index >= INTERFACE_COUNTERS:
        raise CommandError(Status.BAD_INDEX, f"counter {index:#x}")
    counter = adapter.counters.of(index)
    answer = interface_statistics(counter)
    if command.in_modifier & MODIFIER_RESET_COUNTER:
        counter.clear()
    return answer


def access_register(adapter: Adapter, command: Command) -> bytes:
    """Read or write one register; returns the request with the register's present bytes."""
    request = command.mailbox(ACCESS_REG.size + PTYS.size)
    if ACCESS_REG.get(request, "register") != PTYS_ID:
        raise CommandError(Status.BAD_PARAM, f"register {request[4:6].hex()}")
    register = request[ACCESS_REG.size :]
    port = adapter.port_of(PTYS.get(register, "port"))
    method = ACCESS_REG.get(request, "method")
    if PTYS.get(register, "protocol") != PTYS_ETHERNET or method not in (_QUERY, _WRITE):
        raise CommandError(Status.BAD_PARAM, f"protocol {register[3]:#x}, method {method}")
    if method == _WRITE:
        modes = PTYS.get(register, "eth_admin")
        if not modes or modes & ~LINK_MODES:
            raise CommandError(Status.BAD_PARAM, f"link modes {modes:#x}")
        adapter.tables_of(port).link_modes = modes
    return request[: ACCESS_REG.size] + _ptys(port, adapter.tables_of(port))


def _ptys(port: Port, tables: PortTables) -> bytes:
    modes = link_modes(tables)
    used = modes & LinkMode.CR4_40G or modes
    return bytes(
        PTYS.pack(
            port=port.number, protocol=PTYS_ETHERNET, eth_capability=LINK_MODES, eth_admin=modes,
            eth_operational=used if port.link_up else 0,
            eth_partner=LINK_MODES if port.link_up else 0,
        )
    )  # fmt: skip


def config_dev(adapter: Adapter, command: Command) -> bytes | None:
    """Return how received checksums are reported, or set the RoCE v2 port of a ConnectX-3 Pro."""
    if command.op_modifier == _GET:
        return bytes(CONFIG_DEV.pack(rx_checksum=RX_CHECKSUM_MODE))
    if not adapter.config.features.pro or command.op_modifier != _SET:
        raise CommandError(Status.BAD_OP, f"op modifier {command.op_modifier}")
    mailbox = command.mailbox(CONFIG_DEV.size)
    flags = CONFIG_DEV.get(mailbox, "update_flags")
    if flags & ~CONFIG_DEV_ROCE_PORT:
        raise CommandError(Status.BAD_PARAM, f"settings {flags:#x}")
    port = CONFIG_DEV.get(mailbox, "roce_port")
    if flags and port != ROCE_PORT:
        raise CommandError(Status.BAD_PARAM, f"UDP port {port}, RoCE v2 has {ROCE_PORT}")
    return None


RULES: dict[int, Rule] = {
    Opcode.QUERY_PORT: Rule(query_port, before_init=True),
    Opcode.INIT_PORT: Rule(init_port),
    Opcode.CLOSE_PORT: Rule(close_port, closing=True),
    Opcode.SET_VLAN_FLTR: Rule(set_vlan_filter),
    Opcode.SET_MCAST_FLTR: Rule(set_multicast_filter),
    Opcode.DUMP_ETH_STATS: Rule(dump_eth_stats),
    Opcode.CONF_SPECIAL_QP: Rule(conf_special_qp),
    Opcode.SENSE_PORT: Rule(sense_port),
    Opcode.SET_NODE: Rule(set_node),
    Opcode.SET_PORT: Rule(set_port),
    Opcode.QUERY_IF_STAT: Rule(query_if_stat),
    Opcode.ACCESS_REG: Rule(access_register),
    Opcode.CONFIG_DEV: Rule(config_dev),
}
