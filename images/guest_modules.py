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
        "bus.byte_order",
        "bus.vfio",
        "hca.posting.operations",
        "hca.posting.wqe",
        "hca.queues.channel",
        "hca.queues.cq",
        "hca.queues.event_queues",
        "hca.queues.qp",
        "hca.queues.srq",
        "hca.queues.work_queues",
        "krping.benchmarks",
        "krping.client",
        "krping.completions",
        "krping.progress",
        "krping.resources",
        "krping.server",
        "krping.stats",
        "krping.thread",
        "ntrdma.provider.address",
        "rtrs.engine.actions",
        "rtrs.engine.client.dispatch",
        "rtrs.engine.client.events",
        "rtrs.engine.client.messages",
        "rtrs.engine.client.path",
        "rtrs.engine.client.permits",
        "rtrs.engine.client.policies",
        "rtrs.engine.client.requests",
        "rtrs.engine.client.session",
        "rtrs.engine.client.shared",
        "rtrs.engine.client.traffic",
        "rtrs.engine.connection",
        "rtrs.engine.formats",
        "rtrs.engine.heartbeat",
        "rtrs.engine.outbox",
        "rtrs.engine.send_queue",
        "rtrs.engine.server.messages",
        "rtrs.engine.server.operations",
        "rtrs.engine.server.path",
        "rtrs.engine.server.requests",
        "rtrs.engine.server.responses",
        "rtrs.engine.server.server",
        "rtrs.engine.server.shared",
        "rtrs.engine.server.traffic",
        "rtrs.engine.statistics",
        "rtrs.store",
        "rtrs.traffic",
        "rtrs.transport.completions",
        "rtrs.transport.connection",
        "rtrs.transport.loop",
        "rtrs.transport.memory",
        "rtrs.transport.requests",
        "rtrs.transport.transport",
        "verbs.requests",
        "verbs.roce",
        "verbs.values",
    )
)
