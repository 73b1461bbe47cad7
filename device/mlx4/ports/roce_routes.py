"""The ways of RoCE messages: addresses that contexts and address vectors name by table index."""

from __future__ import annotations

from typing import Final

from bluebridge.device.fabric.messages import Route
from bluebridge.device.layout.mlx4.contexts import QPC, ROCE_MODE_V2
from bluebridge.device.layout.mlx4.wqe import AV
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.mlx4.ports.port_tables import Tables

GRH_FLAG: Final = 0x80  # of the byte with the source address


def of_tag(tag: int) -> tuple[int, int]:
    """VLAN and service level of a tag: without one, a message has no place for its level."""
    return (NO_VLAN, 0) if tag == NO_VLAN else (tag & 0xFFF, tag >> 13)


def connected_route(tables: Tables, context: bytes | bytearray) -> Route:
    """The way to the peer that a queue pair context (QPC) describes."""
    get = QPC.get
    vid = tables.vlan(get(context, "pri_vlan_index")) if get(context, "pri_vlan_valid") else None
    level = get(context, "pri_sched_queue") >> 3 & 7
    vlan, level = of_tag(NO_VLAN if vid is None else level << 13 | vid)
    return Route(
        smac=tables.mac(get(context, "pri_mylmc")),
        dmac=QPC.get_raw(context, "pri_dmac"),
        sgid=tables.gid(get(context, "pri_mgid_index")),
        dgid=QPC.get_raw(context, "pri_rgid"),
        vlan=vlan,
        traffic_class=get(context, "pri_tclass"),
        hop_limit=get(context, "pri_hop_limit"),
        service_level=level,
        flow_label=get(context, "pri_flow_label"),
        roce=2 if get(context, "roce_mode") == ROCE_MODE_V2 else 1,
    )


def datagram_route(tables: Tables, av: bytes, vlan: int, mac: bytes) -> Route:
    """The way of one UD message by its address vector; `vlan` and `mac` follow it in a WQE."""
    get = AV.get
    vlan, level = of_tag(vlan if _tagged(av) else NO_VLAN)
    return Route(
        smac=tables.mac(get(av, "g_slid") & 0x7F),
        dmac=mac,
        sgid=tables.gid(get(av, "gid_index")),
        dgid=AV.get_raw(av, "dgid"),
        vlan=vlan,
        traffic_class=get(av, "tclass"),
        hop_limit=get(av, "hop_limit"),
        service_level=level,
        flow_label=get(av, "flow_label"),
        roce=tables.roce_version(get(av, "gid_index")),
    )


def _tagged(av: bytes) -> bool:
    """Whether the VLAN that follows an address vector was set by who wrote that.

    The kernel sets it always, to 0xFFFF for none (Linux `ib/ah.c: create_iboe_ah`). libmlx4 sets it
    with a bit of its own only, and leaves what its heap had there else (`verbs.c: mlx4_create_ah`);
    its address vectors have the flag of a GRH, the kernel's on Ethernet do not.
    """
    return bool(AV.get(av, "vlan_present")) or not AV.get(av, "g_slid") & GRH_FLAG
