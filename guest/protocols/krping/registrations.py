"""krping's `fr` test: fast registrations and their invalidations one after the other.

Nothing but the connection crosses the wire, so the server is one without a test.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from bluebridge.guest.protocols.krping.errors import KrpingError
from bluebridge.guest.protocols.krping.resources import PAGE, SINK_ACCESS, Resources, whole_pages
from bluebridge.guest.verbs import FastRegistration, SendFlags, SendWr, WcStatus, WrOpcode

if TYPE_CHECKING:
    from bluebridge.guest.protocols.krping.thread import KrpingThread

BATCH = 16
LOOKS = 64
"""The number of polls of the completion queue between two looks at the connection."""


def register_again(thread: KrpingThread, resources: Resources) -> None:
    """Make `count` registrations of random lengths, without count until cancelled.

    Half of the send queue's depth is under way; each pair of REG_MR and LOCAL_INV completes once.
    Raises `KrpingError`, `Cancelled`.
    """
    options = thread.options
    pages = whole_pages(options.size) // PAGE
    region = resources.pd.alloc_fast_reg_mr(pages)
    thread.log.line(
        f"fr_test: stag index {region.rkey >> 8:#x} plen {pages} size {options.size} "
        f"depth {options.tx_depth}"
    )
    try:
        _run(thread, resources, region, max(1, options.tx_depth // 2))
    finally:
        region.close()
    thread.log.line("fr_test: done!")


def _run(thread: KrpingThread, resources: Resources, region: FastRegistration, depth: int) -> None:
    count, clock = thread.options.count, time.perf_counter_ns
    posted: list[int] = []
    looks = sent = 0
    while not count or thread.iterations < count:
        while len(posted) < depth and (not count or sent < count):
            posted.append(clock())
            resources.qp.post_send(_pair(resources, region))
            sent += 1
        completions = resources.cq.poll(BATCH)
        for completion in completions:
            if completion.status is not WcStatus.SUCCESS:
                raise KrpingError(f"completion error {completion.status.name}")
            thread.latencies.add((clock() - posted.pop(0)) / 1000)
            thread.iterations += 1
        looks = 0 if completions else looks + 1
        if looks % LOOKS == 0:
            thread.poll_events()


def _pair(resources: Resources, region: FastRegistration) -> list[SendWr]:
    """Return a registration of some of the RDMA buffer under the next key, and its invalidation."""
    length = random.randrange(resources.options.size) or resources.options.size
    key = region.next_key()
    count = whole_pages(length) // PAGE
    register = SendWr(
        opcode=WrOpcode.REG_MR,
        send_flags=SendFlags(0),
        mr=region,
        page_size=PAGE,
        length=length,
        key=key,
        iova=resources.rdma_address,
        pages=tuple(resources.rdma_address + PAGE * index for index in range(count)),
        access=SINK_ACCESS,
    )
    invalidate = SendWr(
        opcode=WrOpcode.LOCAL_INV, send_flags=SendFlags.SIGNALED, invalidate_rkey=key
    )
    return [register, invalidate]
