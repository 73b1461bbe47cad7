"""Turns of a ping-pong, requests one by one, a window of requests, each with the time it took.

The loops of every program that measures latencies; what is sent, and how, is the caller's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

Turn = Callable[[int], object]
"""The type of a call that sends, or waits for, the number of a turn modulo 256, from 1 on."""


def ping_pong(count: int, first: bool, send: Turn, hear: Turn) -> Iterator[float]:
    """Play `count` round trips and yield half of each in microseconds.

    The second side times from its answer to what it hears next, and so yields one time less.
    """
    clock, sent = time.perf_counter_ns, 0
    for turn in range(1, count + 1):
        if first:
            sent = clock()
            send(turn & 0xFF)
        hear(turn & 0xFF)
        if sent:
            yield (clock() - sent) / 2000
        if not first:
            sent = clock()
            send(turn & 0xFF)


def one_by_one(count: int, carry_out: Callable[[], object]) -> Iterator[float]:
    """Carry out `count` requests one after the other; yield the microseconds of each."""
    clock = time.perf_counter_ns
    for _ in range(count):
        begun = clock()
        carry_out()
        yield (clock() - begun) / 1000


def window(
    count: int,
    depth: int,
    post: Callable[[int], object],
    wait: Callable[[], int],
    *,
    in_batches: bool = False,
) -> Iterator[float]:
    """Have up to `depth` requests under way, `count` in all or without end for 0.

    `post` posts so many, `wait` returns how many have been completed, in the order of their posts.
    `in_batches` posts nothing while any is under way. Yields each one's microseconds from post to
    completion.
    """
    clock = time.perf_counter_ns
    posted: deque[int] = deque()
    sent = done = 0
    while not count or done < count:
        room = depth - len(posted)
        if count:
            room = min(room, count - sent)
        if room > 0 and not (in_batches and posted):
            posted.extend([clock()] * room)
            post(room)
            sent += room
        completed = wait()
        now = clock()
        for _ in range(completed):
            yield (now - posted.popleft()) / 1000
            done += 1
