"""Connection management: the InfiniBand CM protocol with rdma_cm's interface and addressing.

    cm = open_cm(device, ip, netif)              # ConnectionManager
    server = cm.create_id()
    server.bind_addr("192.168.69.127", 9999); server.listen()
    event = server.events.get(timeout)           # CmEvent .type .id .status .private_data
    child = event.id                             # after CONNECT_REQUEST
    child.attach(qp); child.accept(ConnParam(...)) or child.reject()

    client = cm.create_id()
    client.resolve_addr("192.168.69.127", 9999)  # ADDR_RESOLVED or ADDR_ERROR
    client.resolve_route()                       # ROUTE_RESOLVED
    client.attach(qp); client.connect(ConnParam(private_data=b"hello"))
    client.disconnect(); client.destroy(); cm.close()

The messages are those of the kernel's ib_cm and rdma_cm (core/cm.c, core/cma.c), MADs over queue
pair 1 of the HCA, so a guest with the kernel's stack can be the peer.

The protocol (`connection`, `identifier`, `table`, `manager`) knows the network only through
`MadTransport`. The RoCE half below it is `gsi`.
"""

from __future__ import annotations

from bluebridge.guest.cm.gsi import open_cm
from bluebridge.guest.cm.identifier import CmEvent, CmId
from bluebridge.guest.cm.interface import CmError, ConnParam, EventType
from bluebridge.guest.cm.manager import ConnectionManager

__all__ = ["CmError", "CmEvent", "CmId", "ConnParam", "ConnectionManager", "EventType", "open_cm"]
