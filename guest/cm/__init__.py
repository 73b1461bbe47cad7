"""Connection management: the InfiniBand CM protocol with rdma_cm's interface and addressing.

    cm = open_cm(context, ip, netif)               # ConnectionManager
    server = cm.create_id()
    server.bind_addr("192.168.69.127", 9999); server.listen()
    event = server.events.get(timeout)           # CmEvent .type .id .status .private_data
    child = event.id                             # after CONNECT_REQUEST
    child.attach(RcPath(qp)); child.accept(ConnParam(...)) or child.reject()

    client = cm.create_id()
    client.resolve_addr("192.168.69.127", 9999)  # ADDR_RESOLVED or ADDR_ERROR
    client.resolve_route()                       # ROUTE_RESOLVED
    client.attach(RcPath(qp)); client.connect(ConnParam(private_data=b"hello"))
    client.disconnect(); client.destroy(); cm.close()

The messages are those of the kernel's ib_cm and rdma_cm (core/cm.c, core/cma.c), MADs over queue
pair 1 of the HCA, so a guest with the kernel's stack can be the peer.
"""

from __future__ import annotations

from bluebridge.guest.cm.events import CmError, CmEvent, ConnParam, EventQueue, EventType
from bluebridge.guest.cm.identifier import CmId
from bluebridge.guest.cm.manager import ConnectionManager
from bluebridge.guest.cm.open import open_cm
from bluebridge.guest.cm.qp import RcPath

__all__ = [
    "CmError",
    "CmEvent",
    "CmId",
    "ConnParam",
    "ConnectionManager",
    "EventQueue",
    "EventType",
    "RcPath",
    "open_cm",
]
