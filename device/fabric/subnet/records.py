"""Records of the subnet administrator that describe the present subnet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bluebridge.device.fabric.addresses import lid_bytes
from bluebridge.device.fabric.subnet.fabric import InfinibandFabric
from bluebridge.device.fabric.subnet.port import PortAgent, block_bytes
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.ib.link import RATE_40_GBPS, partitions_match
from bluebridge.device.layout.ib.mad import FORWARDING_BLOCK, GUID_BLOCK, NO_PORT, PKEY_BLOCK
from bluebridge.device.layout.ib.sa import (
    FORWARDING_RECORD,
    GUID_INFO_RECORD,
    LINK_RECORD,
    NODE_RECORD,
    PATH_RECORD,
    PKEY_TABLE_RECORD,
    PORT_INFO_RECORD,
    SM_INFO_RECORD,
    SWITCH_INFO_RECORD,
    SaAttribute,
)

BEST_LINK = {
    "mtu_selector": 2, "rate_selector": 2, "rate": RATE_40_GBPS, "life_selector": 2,
    "life": 14,  # 4.096 us * 2^14, 67 ms
}  # fmt: skip
SUBNET_LOCAL_HOPS = 0
BLOCK_SIZE = 64

Rows = Callable[[InfinibandFabric], Iterator[bytes]]

MORE, LESS, EXACTLY, BEST = 0, 1, 2, 3
_SELECTED = {"mtu": "mtu_selector", "rate": "rate_selector", "life": "life_selector"}


def _nodes(fabric: InfinibandFabric) -> Iterator[bytes]:
    for node, port in fabric.topology.addressed():
        yield lid_bytes(port.lid) + bytes(2) + node.info(port.number) + node.described()


def _ports(fabric: InfinibandFabric) -> Iterator[tuple[int, PortAgent]]:
    """Yield every port in the subnet with the LID that leads to it."""
    for node, port in fabric.topology.addressed():
        for each in node.ports.values() if node.is_switch else (port,):
            yield port.lid, each


def _port_infos(fabric: InfinibandFabric) -> Iterator[bytes]:
    for lid, port in _ports(fabric):
        yield lid_bytes(lid) + bytes((port.number, 0)) + bytes(port.info)


def _pkey_tables(fabric: InfinibandFabric) -> Iterator[bytes]:
    for lid, port in _ports(fabric):
        for block in range(-(-len(port.pkeys) // PKEY_BLOCK)):
            data = block_bytes(port.pkeys, block, PKEY_BLOCK, 2).ljust(BLOCK_SIZE, b"\0")
            yield lid_bytes(lid) + lid_bytes(block) + bytes((port.number, 0, 0, 0)) + data


def _guid_infos(fabric: InfinibandFabric) -> Iterator[bytes]:
    for _, port in fabric.topology.addressed():
        for block in range(-(-len(port.guids) // GUID_BLOCK)):
            data = block_bytes(port.guids, block, GUID_BLOCK, 8).ljust(BLOCK_SIZE, b"\0")
            yield lid_bytes(port.lid) + bytes((block, 0)) + bytes(4) + data


def _switch_infos(fabric: InfinibandFabric) -> Iterator[bytes]:
    node = fabric.switch.node
    yield lid_bytes(node.ports[0].lid) + bytes(2) + bytes(node.switch_info)


def _forwarding(fabric: InfinibandFabric) -> Iterator[bytes]:
    node = fabric.switch.node
    for block in range(max(node.forwarding, default=0) // FORWARDING_BLOCK + 1):
        first = block * FORWARDING_BLOCK
        lids = range(first, first + FORWARDING_BLOCK)
        ports = bytes(node.forwarding.get(lid, NO_PORT) for lid in lids)
        yield lid_bytes(node.ports[0].lid) + lid_bytes(block) + bytes(4) + ports


def _links(fabric: InfinibandFabric) -> Iterator[bytes]:
    own = fabric.switch.agent.lid
    for port, end in fabric.topology.links():
        yield bytes(LINK_RECORD.pack(
            from_lid=own, from_port=port.number, to_port=end.number, to_lid=end.lid
        ))  # fmt: skip
        yield bytes(LINK_RECORD.pack(
            from_lid=end.lid, from_port=end.number, to_port=port.number, to_lid=own
        ))  # fmt: skip


def _sm_infos(fabric: InfinibandFabric) -> Iterator[bytes]:
    if fabric.switch.manager is not None:
        yield lid_bytes(fabric.switch.agent.lid) + bytes(2) + fabric.switch.manager.sm_info()


def common_pkey(one: PortAgent, other: PortAgent) -> int:
    """Return the first P_Key of a port that reaches a peer; 0 when they share no partition."""
    for key in one.pkeys:
        if any(partitions_match(key, theirs) for theirs in other.pkeys):
            return key
    return 0


def path(source: PortAgent, target: PortAgent, pkey: int) -> bytes:
    """Give the PathRecord between two end ports."""
    return bytes(PATH_RECORD.pack(
        dgid=target.gid(0), sgid=source.gid(0), dlid=target.lid, slid=source.lid,
        hop_limit=SUBNET_LOCAL_HOPS, reversible=1, paths=1, pkey=pkey,
        mtu=min(source.get("neighbour_mtu"), target.get("neighbour_mtu")), **BEST_LINK,
    ))  # fmt: skip


TABLES: dict[int, tuple[Struct, Rows]] = {
    SaAttribute.NODE: (NODE_RECORD, _nodes),
    SaAttribute.PORT_INFO: (PORT_INFO_RECORD, _port_infos),
    SaAttribute.SWITCH_INFO: (SWITCH_INFO_RECORD, _switch_infos),
    SaAttribute.LINEAR_FORWARDING: (FORWARDING_RECORD, _forwarding),
    SaAttribute.SM_INFO: (SM_INFO_RECORD, _sm_infos),
    SaAttribute.LINK: (LINK_RECORD, _links),
    SaAttribute.GUID_INFO: (GUID_INFO_RECORD, _guid_infos),
    SaAttribute.PKEY_TABLE: (PKEY_TABLE_RECORD, _pkey_tables),
}
"""Read-only attributes, with the layout of the record and the function that yields all records."""


def named(table: Struct, mask: int) -> set[str]:
    """Return the fields that a component mask names; unknown bits count as a field called `?`."""
    names = {item.name for number, item in enumerate(table) if mask >> number & 1}
    return names | {"?"} if mask >> len(table.fields) else names


def matches(
    table: Struct,
    example: bytes,
    record: bytes | bytearray,
    names: Iterable[str],
    ignore: frozenset[str],
) -> bool:
    """Return True if `record` agrees with `example` in the named fields."""
    for name in names:
        if name in ignore or name not in table or name in _SELECTED.values():
            continue
        selector = _SELECTED.get(name)
        if selector is not None:
            how = table.get(example, selector) if selector in names else EXACTLY
            if not _selected(how, table.get(record, name), table.get(example, name)):
                return False
        elif table.field(name).raw:
            if table.get_raw(record, name) != table.get_raw(example, name):
                return False
        elif table.get(record, name) != table.get(example, name):
            return False
    return True


def _selected(how: int, offered: int, wanted: int) -> bool:
    """Return True if an MTU, rate or packet life time meets a selector (15.2.5.16)."""
    if how == MORE:
        return offered > wanted
    if how == LESS:
        return offered < wanted
    return how == BEST or offered == wanted
