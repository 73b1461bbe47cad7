"""The ways of RoCE messages: addresses that contexts and address vectors name by table index."""

from __future__ import annotations

from bluebridge.device.fabric.messages import Route
from bluebridge.device.hca.ports.port_tables import Tables
from bluebridge.device.layout.mlx4.contexts import QPC, ROCE_MODE_V2
from bluebridge.device.layout.mlx4.wqe import AV
from bluebridge.device.layout.net.ethernet import NO_VLAN


def connected_route(tables: Tables, context: bytes | bytearray) -> Route:
    """The way to the peer that a queue pair context (QPC) describes."""
    get = QPC.get
    vlan = tables.vlan(get(context, "pri_vlan_index")) if get(context, "pri_vlan_valid") else None
    return Route(
        smac=tables.mac(get(context, "pri_mylmc")),
        dmac=QPC.get_raw(context, "pri_dmac"),
        sgid=tables.gid(get(context, "pri_mgid_index")),
        dgid=QPC.get_raw(context, "pri_rgid"),
        vlan=NO_VLAN if vlan is None else vlan,
        traffic_class=get(context, "pri_tclass"),
        hop_limit=get(context, "pri_hop_limit"),
        service_level=get(context, "pri_sched_queue") >> 3 & 7,
        flow_label=get(context, "pri_flow_label"),
        roce=2 if get(context, "roce_mode") == ROCE_MODE_V2 else 1,
    )


def datagram_route(tables: Tables, av: bytes, vlan: int, mac: bytes) -> Route:
    """The way of one UD message by its address vector; `vlan` and `mac` follow it in a WQE."""
    get = AV.get
    return Route(
        smac=tables.mac(get(av, "g_slid") & 0x7F),
        dmac=mac,
        sgid=tables.gid(get(av, "gid_index")),
        dgid=AV.get_raw(av, "dgid"),
        vlan=vlan,
        traffic_class=get(av, "tclass"),
        hop_limit=get(av, "hop_limit"),
        service_level=get(av, "sl") >> 1,
        flow_label=get(av, "flow_label"),
        roce=tables.roce_version(get(av, "gid_index")),
    )
