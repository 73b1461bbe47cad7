"""Commands of RoCE: the table of own addresses, the P_Key, groups of queue pairs."""

from __future__ import annotations

from collections.abc import Iterator

from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.objects import GROUP_MEMBER, SET_ROCE_ADDRESS, VPORT_PKEY
from bluebridge.device.layout.mlx5.queue_pairs import QPC
from bluebridge.device.layout.net.roce import DEFAULT_PKEY
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.command import Rule


def set_address(adapter: Adapter, data: bytes) -> Iterator[bytes]:
    """Set or remove an own address, in portions."""
    get = SET_ROCE_ADDRESS.get
    address = SET_ROCE_ADDRESS.get_raw(data, "address")
    for _ in adapter.objects.set_roce_address(get(data, "index"), address):
        yield b""
    yield b""


def query_address(adapter: Adapter, data: bytes) -> bytes:
    """Return an own address, zeros without one."""
    index = SET_ROCE_ADDRESS.get(data, "index")
    return bytes(0x10) + adapter.objects.sources.entry(index)


def query_pkey(adapter: Adapter, data: bytes) -> bytes:
    """Return the P_Key, of which RoCE has one (Linux `ib/main.c: mlx5_query_hca_nic_pkey`)."""
    return bytes(VPORT_PKEY.pack(pkey=DEFAULT_PKEY))


def attach(adapter: Adapter, data: bytes) -> None:
    """Have a queue pair get the datagrams of a group."""
    rdma, qpn = adapter.objects.rdma, GROUP_MEMBER.get(data, "qpn")
    refuses = bool(QPC.get(rdma.made.known(qpn).context, "no_own_multicast"))
    rdma.groups.attach(GROUP_MEMBER.get_raw(data, "gid"), qpn, refuses_own=refuses)


def detach(adapter: Adapter, data: bytes) -> None:
    """Give a queue pair no more datagrams of a group."""
    gid, qpn = GROUP_MEMBER.get_raw(data, "gid"), GROUP_MEMBER.get(data, "qpn")
    adapter.objects.rdma.groups.detach(gid, qpn)


RULES: dict[int, Rule] = {
    Opcode.SET_ROCE_ADDRESS: Rule(set_address, SET_ROCE_ADDRESS.size),
    Opcode.QUERY_ROCE_ADDRESS: Rule(query_address),
    Opcode.QUERY_HCA_VPORT_PKEY: Rule(query_pkey),
    Opcode.ATTACH_TO_MCG: Rule(attach, GROUP_MEMBER.size),
    Opcode.DETACH_FROM_MCG: Rule(detach, GROUP_MEMBER.size),
}
