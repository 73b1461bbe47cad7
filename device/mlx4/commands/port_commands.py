"""Commands on the port: link, properties, filters, statistics, special queue pairs."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.capabilities import QUERY_PORT, VLAN_TABLE_ENTRIES
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.mlx4.adapter import Adapter
from bluebridge.device.mlx4.commands.command import Command, Rule
from bluebridge.device.mlx4.ports.properties import properties, set_special_base
from bluebridge.device.mlx4.ports.statistics import ethernet_statistics, flow_statistics
from bluebridge.device.mlx4.settings.parameters import HighRate
from bluebridge.device.mlx4.settings.refusal import CommandError
from bluebridge.device.rdma.ports.counters import FrameCounters

HIGH_RATES = (HighRate.DYNAMIC, HighRate.STATIC)
MCAST_CONFIG, MCAST_DISABLE, MCAST_ENABLE = 0, 1, 2
MCAST_FLUSH = 1 << 63
STATS_RESET = 1 << 8
STATS_FLOW_CONTROL = 1 << 12


def query_port(adapter: Adapter, command: Command) -> bytes:
    """Return the properties of a port."""
    parameters = adapter.parameters
    return bytes(
        QUERY_PORT.pack(
            properties(adapter.port_of(command.in_modifier)),
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
    port.tables.vlan_filter = command.mailbox(VLAN_TABLE_ENTRIES * 4)


def set_multicast_filter(adapter: Adapter, command: Command) -> None:
    """Add the address in the immediate input to a filter; bit 63 empties the list first."""
    port = adapter.port_of(command.in_modifier & 0xFF)
    tables = port.tables
    if command.op_modifier == MCAST_CONFIG:
        if command.in_param & MCAST_FLUSH:
            tables.multicast_filter.clear()
        address = command.in_param & (1 << 48) - 1
        if address:
            port.filter_multicast(address.to_bytes(6, "big"))
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
    return properties(port)["supported_types"] if port.cable else 0


def set_node(adapter: Adapter, command: Command) -> None:
    """Set a new node description."""
    adapter.node.description = command.mailbox(64)


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
}
