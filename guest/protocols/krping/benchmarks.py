"""Tests of krping besides ping: latencies, bandwidth, fast registrations."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bluebridge.guest.protocols.krping.option_string import Test
from bluebridge.guest.protocols.krping.progress import KrpingError, State
from bluebridge.guest.protocols.krping.resources import PAGE, SINK_ACCESS, Resources, whole_pages
from bluebridge.guest.rounds import one_by_one, ping_pong, window
from bluebridge.guest.verbs import FastRegistration, SendFlags, SendWr, WcStatus, WrOpcode

if TYPE_CHECKING:
    from bluebridge.guest.protocols.krping.thread import KrpingThread


SPINS = 500
"""The number of polls of memory between two looks at the connection."""

BATCH = 16
LOOKS = 64
"""The number of polls of the completion queue between two looks at the connection."""


def bench_client(thread: KrpingThread, resources: Resources) -> None:
    """Exchange buffers with the server, run the test that was picked, log its result."""
    thread.state = State.RDMA_READ_ADV
    thread.post(resources.advertise(resources.start_address))
    thread.wait_for(State.RDMA_WRITE_ADV)
    _run(thread, resources, thread.options.test)
    while thread.options.duplex and thread.stats.recv_msgs < 2:
        thread.await_completion()  # the server's word that its writes are done, too


def bench_server(thread: KrpingThread, resources: Resources) -> None:
    """Answer the client's buffer with ours, do the server's part, wait for the end."""
    thread.wait_for(State.RDMA_READ_ADV, boundary=True)
    thread.post(resources.advertise(resources.start_address))
    options = thread.options
    if options.test is Test.WLAT or options.duplex:
        _run(thread, resources, options.test)
    if options.duplex:
        thread.post((resources.send_wr,))
    thread.wait_for(State.ERROR, boundary=True)
    if not thread.disconnected:
        raise KrpingError(thread.failure)


def _run(thread: KrpingThread, resources: Resources, test: Test) -> None:
    """Run one test and log its result line, which is the module's."""
    begun = time.perf_counter_ns()
    {Test.WLAT: _wlat, Test.RLAT: _rlat, Test.BW: _bw}[test](thread, resources)
    seconds, rest = divmod(time.perf_counter_ns() - begun, 10**9)
    count, size = thread.options.count, thread.options.size
    thread.log.note(
        f"delta sec {seconds} delta usec {rest // 1000} iter {count} size {size}"
        + _reading(test, seconds * 10**9 + rest, count, size)
    )


def _reading(test: Test, nanoseconds: int, count: int, size: int) -> str:
    """Return the result in its usual unit, which is appended to the module's line."""
    each = nanoseconds / 1000 / count
    if test is Test.BW:
        return f" ({count * size * 8 / max(1, nanoseconds):.3f} Gbit/s)"
    if test is Test.WLAT:
        return f" (RTT/2 {each / 2:.1f} usec)"
    return f" ({each:.1f} usec)"


def _request(thread: KrpingThread, resources: Resources, opcode: WrOpcode) -> SendWr:
    """Return the work request between this side's RDMA buffer and the peer's start buffer."""
    address, key, length = thread.remote
    if length != thread.options.size:
        raise KrpingError(
            f"the peer has size={length}, we have size={thread.options.size}: "
            "give both sides the same"
        )
    return resources.rdma_request(opcode, address, key, length, resources.local_key)


def _wlat(thread: KrpingThread, resources: Resources) -> None:
    """Play ping-pong by RDMA WRITEs, each side polling its memory for the other's.

    The last byte carries the number, since it lands last. Latencies are whole round trips.
    """
    request = _request(thread, resources, WrOpcode.RDMA_WRITE)
    last, client = thread.options.size - 1, not thread.options.server

    def send(number: int) -> None:
        resources.rdma[last] = number
        thread.state = State.CONNECTED
        thread.post((request,))
        _spin_state(thread, State.RDMA_WRITE_COMPLETE)

    def hear(number: int) -> None:
        _spin_memory(thread, resources, last, number)
        thread.iterations += 1

    for half in ping_pong(thread.options.count, client, send, hear):
        if client:
            thread.latencies.add(2 * half)


def _rlat(thread: KrpingThread, resources: Resources) -> None:
    """Post RDMA READs one after the other, waiting for an event or, with poll, spinning."""
    request = _request(thread, resources, WrOpcode.RDMA_READ)

    def read() -> None:
        thread.state = State.CONNECTED
        thread.post((request,))
        if thread.options.poll:
            _spin_state(thread, State.RDMA_READ_COMPLETE)
        else:
            thread.wait_for(State.RDMA_READ_COMPLETE)

    _count(thread, one_by_one(thread.options.count, read))


def _bw(thread: KrpingThread, resources: Resources) -> None:
    """Post RDMA WRITEs with up to tx-depth under way; latencies are from posting to completion."""
    request = _request(thread, resources, WrOpcode.RDMA_WRITE)
    stats = thread.stats

    def post(room: int) -> None:
        thread.post([request] * room)

    def wait() -> int:
        before = stats.write_msgs
        thread.await_completion()
        return stats.write_msgs - before

    _count(thread, window(thread.options.count, thread.options.tx_depth, post, wait))


def _count(thread: KrpingThread, times: Iterator[float]) -> None:
    """Carry a test out, and keep the time of each iteration."""
    for microseconds in times:
        thread.latencies.add(microseconds)
        thread.iterations += 1


def _spin_memory(thread: KrpingThread, resources: Resources, index: int, wanted: int) -> None:
    """Poll the start buffer until byte `index` is `wanted`."""
    memory, spins = resources.start, 0
    while memory[index] != wanted:
        spins += 1
        if spins % SPINS == 0:
            thread.poll_events()


def _spin_state(thread: KrpingThread, wanted: State) -> None:
    spins = 0
    while thread.state < wanted:
        if not thread.drain():
            spins += 1
            if spins % SPINS == 0:
                thread.poll_events()
    if thread.state is not wanted:
        raise KrpingError(thread.failure or "state == ERROR...bailing")


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
        _register(thread, resources, region, max(1, options.tx_depth // 2))
    finally:
        region.close()
    thread.log.line("fr_test: done!")


def _register(
    thread: KrpingThread, resources: Resources, region: FastRegistration, depth: int
) -> None:
    looks = 0

    def post(room: int) -> None:
        for _ in range(room):
            resources.qp.post_send(_pair(resources, region))

    def wait() -> int:
        nonlocal looks
        completions = resources.cq.poll(BATCH)
        for completion in completions:
            if completion.status is not WcStatus.SUCCESS:
                raise KrpingError(f"completion error {completion.status.name}")
        looks = 0 if completions else looks + 1
        if looks % LOOKS == 0:
            thread.poll_events()
        return len(completions)

    _count(thread, window(thread.options.count, depth, post, wait))


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
