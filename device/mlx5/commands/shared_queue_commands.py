"""Commands on shared receive queues: RMPs, those of XRC, and XRC domains."""

from __future__ import annotations

from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.contexts import RMPC, WQ, WQ_OFFSET
from bluebridge.device.layout.mlx5.objects import CONTEXT, ENTRY, LIST, MODIFY_QUEUE
from bluebridge.device.layout.mlx5.queue_pairs import ARM_XRC_SRQ, RMP_LIMIT, XRC_SRQC
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.command import Rule, number_of, numbered

_PAGES = CONTEXT + WQ_OFFSET + WQ.size


def alloc_xrcd(adapter: Adapter, data: bytes) -> bytes:
    """Return the number of an XRC domain."""
    return numbered(adapter.objects.rdma.xrcds.take())


def dealloc_xrcd(adapter: Adapter, data: bytes) -> None:
    """Free an XRC domain."""
    adapter.objects.rdma.xrcds.free(number_of(data))


def create_rmp(adapter: Adapter, data: bytes) -> bytes:
    """Make a shared receive queue, and return its number."""
    context = data[CONTEXT : CONTEXT + RMPC.size]
    return numbered(adapter.objects.rdma.srqs.create_pool(context, data[_PAGES:]))


def modify_rmp(adapter: Adapter, data: bytes) -> None:
    """Ask for an event when few entries are left."""
    queue = adapter.objects.rdma.srqs.known(number_of(data))
    if MODIFY_QUEUE.get(data, "fields") & RMP_LIMIT:
        queue.arm(WQ.get(data, "limit", CONTEXT + WQ_OFFSET))


def query_rmp(adapter: Adapter, data: bytes) -> bytes:
    """Return the present context."""
    return bytes(CONTEXT) + adapter.objects.rdma.srqs.known(number_of(data)).query()


def create_xrc_srq(adapter: Adapter, data: bytes) -> bytes:
    """Make a shared receive queue of XRC, and return its number."""
    context, objects = data[ENTRY : ENTRY + XRC_SRQC.size], adapter.objects
    objects.cqs.known(XRC_SRQC.get(context, "cqn"))
    objects.rdma.xrcds.check(XRC_SRQC.get(context, "xrcd"))
    return numbered(objects.rdma.srqs.create_xrc(data))


def query_xrc_srq(adapter: Adapter, data: bytes) -> bytes:
    """Return the present context."""
    return bytes(ENTRY) + adapter.objects.rdma.srqs.known(number_of(data)).query()


def arm_xrc_srq(adapter: Adapter, data: bytes) -> None:
    """Ask for an event when few entries are left."""
    adapter.objects.rdma.srqs.known(number_of(data)).arm(ARM_XRC_SRQ.get(data, "limit"))


def destroy_srq(adapter: Adapter, data: bytes) -> None:
    """Destroy a shared receive queue of either kind."""
    adapter.objects.rdma.srqs.destroy(number_of(data))


RULES: dict[int, Rule] = {
    Opcode.ALLOC_XRCD: Rule(alloc_xrcd),
    Opcode.DEALLOC_XRCD: Rule(dealloc_xrcd),
    Opcode.CREATE_RMP: Rule(create_rmp, _PAGES),
    Opcode.MODIFY_RMP: Rule(modify_rmp, CONTEXT + RMPC.size),
    Opcode.QUERY_RMP: Rule(query_rmp),
    Opcode.DESTROY_RMP: Rule(destroy_srq),
    Opcode.CREATE_XRC_SRQ: Rule(create_xrc_srq, LIST),
    Opcode.QUERY_XRC_SRQ: Rule(query_xrc_srq),
    Opcode.ARM_XRC_SRQ: Rule(arm_xrc_srq, ARM_XRC_SRQ.size),
    Opcode.DESTROY_XRC_SRQ: Rule(destroy_srq),
}
