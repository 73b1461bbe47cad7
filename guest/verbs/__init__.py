"""The verbs of the guest's user-space driver: the whole public interface in one place.

    bus = guest.bus.vfio.VfioBus()                       # or any other guest.bus.interface.Bus
    ctx = open_device(bus)                           # reset, INIT_HCA, queues, port: Context
    memory = ctx.allocate(65536)                     # .address for the device, .view for us
    pd = ctx.alloc_pd()                              # Pd
    mr = pd.reg_mr(memory.address, 65536, access=AccessFlags.LOCAL_WRITE)     # .lkey .rkey
    dma = pd.get_dma_mr(AccessFlags.LOCAL_WRITE)     # all of memory, iova = DMA address
    frmr = pd.alloc_fast_reg_mr(max_pages)           # FastRegMr .rkey .next_key() .close()
    channel = ctx.create_comp_channel()              # .fileno() .get_event(timeout) -> Cq | None
    cq = ctx.create_cq(128, channel)                 # .poll(n) -> list[Wc] .req_notify(solicited)
    qp = pd.create_qp(QpInit(QpType.RC, cq, cq))     # .qpn .state .modify(QpAttr(...)) …
    qp.modify_init(access); qp.modify_rtr(path, qpn, psn); qp.modify_rts(psn)
    qp.post_recv(RecvWr(1, [Sge(address, length, lkey)])); qp.post_send([SendWr(...), ...])
    event = ctx.async_events.get_event(timeout)      # AsyncEvent | None
    index = ctx.add_gid(gid); ctx.gids; ctx.mac; ctx.port_active

**BlueFlame.** `open_device(bus, blueflame=BlueFlameUse())` sends through BlueFlame what libmlx4
does: a post of one request with inline data, or of one RDMA READ, whose entry fits into half a
register. The device must advertise it.

**Events.** There is no hidden thread. A completion channel *is* an event queue of the device with
an MSI-X vector of its own; whoever calls `get_event` drains that queue and re-arms it in its own
thread, so a wake-up costs one thread switch. `fileno()` is the vector's eventfd: after it became
readable call `get_event(0)` until it gives None. One CQ event comes per `req_notify`; as always,
poll the CQ empty after arming it, then wait. `ctx.async_events` is the same thing for vector 0.
Verbs may be called from several threads. Waits look at the device once a second: when it is gone
they end with `DeviceLost`, as do verbs, while everything that destroys or closes succeeds.
"""

from __future__ import annotations

from bluebridge.guest.hca.context import Context, open_device
from bluebridge.guest.hca.errors import DeviceLost, FirmwareError, HcaError, VerbsError
from bluebridge.guest.hca.memory_regions import FastRegMr, Mr
from bluebridge.guest.hca.pd import Pd
from bluebridge.guest.hca.posting.blueflame import BlueFlameUse
from bluebridge.guest.hca.queues.channel import CompChannel
from bluebridge.guest.hca.queues.cq import Cq
from bluebridge.guest.hca.queues.eq import AsyncChannel
from bluebridge.guest.hca.queues.qp import Qp
from bluebridge.guest.hca.queues.srq import Srq
from bluebridge.guest.verbs.enums import (
    AccessFlags,
    QpState,
    QpType,
    SendFlags,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from bluebridge.guest.verbs.values import (
    Ah,
    AsyncEvent,
    DeviceAttr,
    PathAttr,
    PortAttr,
    QpAttr,
    QpInit,
    RecvWr,
    SendWr,
    Sge,
    Wc,
)

__all__ = [
    "AccessFlags",
    "Ah",
    "AsyncChannel",
    "AsyncEvent",
    "BlueFlameUse",
    "CompChannel",
    "Context",
    "Cq",
    "DeviceAttr",
    "DeviceLost",
    "FastRegMr",
    "FirmwareError",
    "HcaError",
    "Mr",
    "PathAttr",
    "Pd",
    "PortAttr",
    "Qp",
    "QpAttr",
    "QpInit",
    "QpState",
    "QpType",
    "RecvWr",
    "SendFlags",
    "SendWr",
    "Sge",
    "Srq",
    "VerbsError",
    "Wc",
    "WcFlags",
    "WcOpcode",
    "WcStatus",
    "WrOpcode",
    "open_device",
]
