"""Commands on flow tables, groups and entries, and on counters of flows."""

from __future__ import annotations

from bluebridge.device.layout.mlx5.commands import INPUT, Opcode, Status
from bluebridge.device.layout.mlx5.steering import (
    CREATE_FLOW_GROUP,
    CREATE_FLOW_TABLE,
    DESTINATION,
    FLOW_TABLE,
    MODIFY_ENTRY,
    MODIFY_FLOW_TABLE,
    QUERY_FLOW_COUNTER,
    SET_FLOW_ENTRY,
    SET_FLOW_TABLE_ROOT,
    TRAFFIC_COUNTER,
)
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.command import Rule, number_of, numbered
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.mlx5.steering.tables import MAX_DESTINATIONS, FlowCounter, FlowTable

MISS_ACTION = 1
"""The field that MODIFY_FLOW_TABLE changes."""
QUERIED_COUNTERS = 0x10
"""Offset of the counters in the output of QUERY_FLOW_COUNTER."""


def _table(adapter: Adapter, data: bytes) -> FlowTable:
    return adapter.objects.flows.table(FLOW_TABLE.get(data, "table"), FLOW_TABLE.get(data, "type"))


def create_flow_table(adapter: Adapter, data: bytes) -> bytes:
    """Make a flow table, and return its number."""
    get = CREATE_FLOW_TABLE.get
    return numbered(
        adapter.objects.flows.create(
            get(data, "type"),
            get(data, "level"),
            get(data, "log_size"),
            get(data, "miss_action"),
            get(data, "miss_table"),
        )
    )


def modify_flow_table(adapter: Adapter, data: bytes) -> None:
    """Change where frames go that match nothing in a table."""
    get, table = MODIFY_FLOW_TABLE.get, _table(adapter, data)
    if get(data, "fields") & MISS_ACTION:
        adapter.objects.flows.modify(table, get(data, "miss_action"), get(data, "miss_table"))


def destroy_flow_table(adapter: Adapter, data: bytes) -> None:
    """Destroy a flow table."""
    adapter.objects.flows.destroy(_table(adapter, data))


def create_flow_group(adapter: Adapter, data: bytes) -> bytes:
    """Make a group of a flow table, and return its number."""
    get, table = CREATE_FLOW_GROUP.get, _table(adapter, data)
    mask = CREATE_FLOW_GROUP.get_raw(data, "mask")
    first, last = get(data, "first"), get(data, "last")
    flows = adapter.objects.flows
    return numbered(flows.create_group(table, first, last, get(data, "criteria"), mask))


def destroy_flow_group(adapter: Adapter, data: bytes) -> None:
    """Destroy a group of a flow table."""
    group = FLOW_TABLE.get(data, "group")
    adapter.objects.flows.destroy_group(_table(adapter, data), group)


def set_flow_entry(adapter: Adapter, data: bytes) -> None:
    """Make an entry of a flow table, or change one."""
    get, table = SET_FLOW_ENTRY.get, _table(adapter, data)
    count, counted = get(data, "destinations"), get(data, "counters")
    if count + counted > MAX_DESTINATIONS:
        raise Refused(Status.LIM_ERR, f"{count + counted} destinations")
    listed = data[SET_FLOW_ENTRY.size :][: 8 * (count + counted)]
    if len(listed) < 8 * (count + counted):
        raise Refused(Status.BAD_INP_LEN, f"{len(listed) // 8} destinations of {count + counted}")
    modifies = INPUT.get(data, "op_mod") == MODIFY_ENTRY
    adapter.objects.flows.set_entry(
        table,
        get(data, "index"),
        get(data, "group"),
        SET_FLOW_ENTRY.get_raw(data, "value"),
        action=get(data, "action"),
        tag=get(data, "tag"),
        destinations=[
            (DESTINATION.get(listed, "type", at), DESTINATION.get(listed, "number", at))
            for at in range(0, 8 * count, 8)
        ],
        counters=[
            int.from_bytes(listed[at : at + 4], "big") for at in range(8 * count, len(listed), 8)
        ],
        fields=get(data, "fields") if modifies else None,
    )


def delete_flow_entry(adapter: Adapter, data: bytes) -> None:
    """Delete an entry of a flow table."""
    table, index = _table(adapter, data), FLOW_TABLE.get(data, "index")
    adapter.objects.flows.delete_entry(table, index)


def set_flow_table_root(adapter: Adapter, data: bytes) -> None:
    """Choose the flow table that received frames take first."""
    get = SET_FLOW_TABLE_ROOT.get
    table = adapter.objects.flows.table(get(data, "table"), get(data, "type"))
    adapter.objects.flows.root = table.number


def alloc_flow_counter(adapter: Adapter, data: bytes) -> bytes:
    """Return the number of a counter of flows."""
    return numbered(adapter.objects.flows.counters.add(FlowCounter()))


def dealloc_flow_counter(adapter: Adapter, data: bytes) -> None:
    """Free a counter of flows."""
    adapter.objects.flows.counters.remove(number_of(data))


def query_flow_counter(adapter: Adapter, data: bytes) -> bytes:
    """Return a counter of flows, and clear it if that is wanted."""
    counter = adapter.objects.flows.counters.known(QUERY_FLOW_COUNTER.get(data, "counter"))
    answer = TRAFFIC_COUNTER.pack(packets=counter.packets, octets=counter.octets)
    if QUERY_FLOW_COUNTER.get(data, "clear"):
        counter.packets = counter.octets = 0
    return bytes(QUERIED_COUNTERS) + bytes(answer)


RULES: dict[int, Rule] = {
    Opcode.CREATE_FLOW_TABLE: Rule(create_flow_table, CREATE_FLOW_TABLE.size),
    Opcode.MODIFY_FLOW_TABLE: Rule(modify_flow_table, MODIFY_FLOW_TABLE.size),
    Opcode.DESTROY_FLOW_TABLE: Rule(destroy_flow_table, FLOW_TABLE.size),
    Opcode.CREATE_FLOW_GROUP: Rule(create_flow_group, CREATE_FLOW_GROUP.size),
    Opcode.DESTROY_FLOW_GROUP: Rule(destroy_flow_group, FLOW_TABLE.size),
    Opcode.SET_FLOW_TABLE_ENTRY: Rule(set_flow_entry, SET_FLOW_ENTRY.size),
    Opcode.DELETE_FLOW_TABLE_ENTRY: Rule(delete_flow_entry, FLOW_TABLE.size),
    Opcode.SET_FLOW_TABLE_ROOT: Rule(set_flow_table_root, SET_FLOW_TABLE_ROOT.size),
    Opcode.ALLOC_FLOW_COUNTER: Rule(alloc_flow_counter),
    Opcode.DEALLOC_FLOW_COUNTER: Rule(dealloc_flow_counter),
    Opcode.QUERY_FLOW_COUNTER: Rule(query_flow_counter, QUERY_FLOW_COUNTER.size),
}
