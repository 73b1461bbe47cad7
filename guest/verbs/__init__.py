"""Verbs: the interface between programs that send and receive, and the drivers below them.

    bus = guest.bus.machine.open_bus()       # or any guest.bus.interface.Bus
    device = guest.providers.open_device(bus)        # Device, whichever provider fits the function
    memory = device.allocate(65536)                  # .address for the device, .view for us
    pd = device.alloc_pd()                           # ProtectionDomain
    mr = pd.reg_mr(memory.address, 65536, access=AccessFlags.LOCAL_WRITE)     # .lkey .rkey
    dma = pd.get_dma_mr(AccessFlags.LOCAL_WRITE)     # all of memory, iova = DMA address
    region = pd.alloc_fast_reg_mr(max_pages)         # FastRegistration .rkey .next_key() .close()
    channel = device.create_comp_channel()           # .fileno() .get_event(timeout)
    cq = device.create_cq(128, channel)              # .poll(n) -> list[Wc] .req_notify(solicited)
    qp = pd.create_qp(QpInit(QpType.RC, cq, cq))     # .qpn .state .modify(QpAttr(...)) …
    there = device.address_vector(peer_address)      # the peer sent its `device.address` and qpn
    qp.modify_init(access); qp.modify_rtr(there, peer_qpn, psn); qp.modify_rts(psn)
    qp.post_recv(RecvWr(1, [Sge(address, length, lkey)])); qp.post_send([SendWr(...), ...])

Modules, ground first: `enums`, `values` (with queues and regions as protocols),
`transitions` (the base class of queue pairs), `interface` (device, protection domain and queue pair
as protocols). A provider implements the protocols by structure; `guest.drivers.hca` is the first.
Users import from here and from `guest.providers`, never a provider.

**Events.** There is no hidden thread. A caller of `get_event` of a completion channel waits in its
own thread, so a wake-up costs one thread switch. After `fileno()` became readable call
`get_event(0)` until it gives None. One event comes per `req_notify`; as always, poll the completion
queue empty after arming it, then wait. Verbs may be called from several threads. Waits look at the
device every `HEALTH_SECONDS`: when it is gone they end with `DeviceLost`, as do verbs, while
everything that destroys or closes succeeds.
"""

from __future__ import annotations

from bluebridge.guest.errors import DeviceLost, VerbsError
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
from bluebridge.guest.verbs.interface import (
    HEALTH_SECONDS,
    Device,
    EthernetPort,
    Health,
    ProtectionDomain,
    QueuePair,
)
from bluebridge.guest.verbs.values import (
    AddressVector,
    CompletionChannel,
    CompletionQueue,
    DeviceAttr,
    FastRegistration,
    MemoryRegion,
    PortAttr,
    QpAttr,
    QpInit,
    RecvWr,
    RoceAddress,
    SendWr,
    Sge,
    SharedReceiveQueue,
    Wc,
)

__all__ = [
    "HEALTH_SECONDS", "AccessFlags", "AddressVector", "CompletionChannel", "CompletionQueue",
    "Device", "DeviceAttr", "DeviceLost", "EthernetPort", "FastRegistration", "Health",
    "MemoryRegion", "PortAttr", "ProtectionDomain", "QpAttr", "QpInit", "QpState", "QpType",
    "QueuePair", "RecvWr", "RoceAddress", "SendFlags", "SendWr", "Sge", "SharedReceiveQueue",
    "VerbsError", "Wc", "WcFlags", "WcOpcode", "WcStatus", "WrOpcode",
]  # fmt: skip
