"""Which modules of the guest are compiled: those that run for every message.

A module that runs seldom stays a source: importing native code takes a guest longer than importing
byte code, since each page of it must be translated by the emulator first. So do modules that are
started by `python3 -m`, and those that only declare constants or protocols.
"""

from __future__ import annotations

GROUP = "bluebridge_guest"
MODULES = tuple(
    f"bluebridge.guest.{name}"
    for name in (
        "drivers.bus.byte_order",
        "drivers.bus.vectors",
        "drivers.bus.vfio",
        "drivers.dma.channel",
        "drivers.hca.posting.operations",
        "drivers.hca.posting.wqe",
        "drivers.hca.queues.cq",
        "drivers.hca.queues.event_queues",
        "drivers.hca.queues.qp",
        "drivers.hca.queues.srq",
        "drivers.hca.queues.work_queues",
        "protocols.krping.benchmarks",
        "protocols.krping.progress",
        "protocols.krping.resources",
        "protocols.krping.sides",
        "protocols.krping.thread",
        "protocols.ntrdma.engine.completions",
        "protocols.ntrdma.engine.engine",
        "protocols.ntrdma.engine.entries",
        "protocols.ntrdma.engine.ethernet",
        "protocols.ntrdma.engine.memory",
        "protocols.ntrdma.engine.own_side",
        "protocols.ntrdma.engine.peer",
        "protocols.ntrdma.engine.queue_pair",
        "protocols.ntrdma.engine.receives",
        "protocols.ntrdma.engine.regions",
        "protocols.ntrdma.engine.remote_pair",
        "protocols.ntrdma.engine.requester",
        "protocols.ntrdma.engine.responder",
        "protocols.ntrdma.engine.schedule",
        "protocols.ntrdma.engine.sends",
        "protocols.ntrdma.interface",
        "protocols.ntrdma.provider.completions",
        "protocols.ntrdma.provider.queue_pair",
        "protocols.ntrdma.provider.regions",
        "protocols.ntrdma.service",
        "protocols.ntrdma.transports.ntb",
        "protocols.rtrs.engine.actions",
        "protocols.rtrs.engine.client.dispatch",
        "protocols.rtrs.engine.client.messages",
        "protocols.rtrs.engine.client.path",
        "protocols.rtrs.engine.client.session",
        "protocols.rtrs.engine.client.shared",
        "protocols.rtrs.engine.client.traffic",
        "protocols.rtrs.engine.connection",
        "protocols.rtrs.engine.formats",
        "protocols.rtrs.engine.heartbeat",
        "protocols.rtrs.engine.interface",
        "protocols.rtrs.engine.server.messages",
        "protocols.rtrs.engine.server.operations",
        "protocols.rtrs.engine.server.path",
        "protocols.rtrs.engine.server.server",
        "protocols.rtrs.engine.server.shared",
        "protocols.rtrs.engine.server.traffic",
        "protocols.rtrs.traffic",
        "protocols.rtrs.transport.completions",
        "protocols.rtrs.transport.connection",
        "protocols.rtrs.transport.loop",
        "protocols.rtrs.transport.memory",
        "protocols.rtrs.transport.transport",
        "verbs.transitions",
        "verbs.values",
    )
)
