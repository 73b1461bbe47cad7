"""Paths as queue pair contexts and address vectors describe them."""

from __future__ import annotations

from struct import Struct
from typing import Final

from bluebridge.device.layout.mlx4.contexts import QPC, ROCE_MODE_V2
from bluebridge.device.layout.mlx4.wqe import AV
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.rdma.ports.port_tables import Path

GRH_FLAG: Final = 0x80  # of the byte with the source address
PATH_BITS: Final = 0x7F
_VECTOR: Final = Struct(">32sH6s")
"""Layout of an address vector, and the VLAN tag and MAC address behind it in an entry."""


def path_of_context(context: bytes | bytearray) -> Path:
    """Return the primary path in the context of a queue pair (QPC)."""
    get = QPC.get
    path = Path()
    path.source = get(context, "pri_mylmc")
    path.mac = QPC.get_raw(context, "pri_dmac")
    path.lid = get(context, "pri_rlid")
    path.global_route = bool(get(context, "pri_grh"))
    path.gid_index = get(context, "pri_mgid_index")
    path.gid = QPC.get_raw(context, "pri_rgid")
    path.traffic_class = get(context, "pri_tclass")
    path.hop_limit = get(context, "pri_hop_limit")
    path.flow_label = get(context, "pri_flow_label")
    path.service_level = get(context, "pri_sched_queue") >> 2 & 15
    path.priority = get(context, "pri_sched_queue") >> 3 & 7
    if get(context, "pri_vlan_valid"):
        path.vlan_index = get(context, "pri_vlan_index")
    path.roce = 2 if get(context, "roce_mode") == ROCE_MODE_V2 else 1
    return path


def path_of_vector(address: bytes) -> Path:
    """Return the path of one UD message: its address vector, the tag and MAC address behind it."""
    av, tag, mac = _VECTOR.unpack(address)
    get = AV.get
    path = Path()
    path.source = get(av, "g_slid") & PATH_BITS
    path.mac = mac
    path.lid = get(av, "dlid")
    path.global_route = bool(get(av, "g_slid") & GRH_FLAG)
    path.gid_index = get(av, "gid_index")
    path.gid = AV.get_raw(av, "dgid")
    path.traffic_class = get(av, "tclass")
    path.hop_limit = get(av, "hop_limit")
    path.flow_label = get(av, "flow_label")
    path.service_level = get(av, "sl")
    path.tag = tag if _tagged(av) else NO_VLAN
    return path


def _tagged(av: bytes) -> bool:
    """Return True if the VLAN behind an address vector was set by the writer of the vector.

    The kernel sets it always, to 0xFFFF for none (Linux `ib/ah.c: create_iboe_ah`). libmlx4 sets it
    with a bit of its own only, and leaves what its heap had there else (`verbs.c: mlx4_create_ah`);
    its address vectors have the flag of a GRH, the kernel's on Ethernet do not.
    """
    return bool(AV.get(av, "vlan_present")) or not AV.get(av, "g_slid") & GRH_FLAG
