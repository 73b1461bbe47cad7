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
        "verbs.requests",
        "verbs.roce",
        "verbs.values",
    )
)
