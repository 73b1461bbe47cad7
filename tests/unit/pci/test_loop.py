"""The server's loop."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from time import sleep, thread_time

import pytest

from bluebridge.device.pci.loop import FEW_TIMERS, SLOW_SECONDS, SOON_SECONDS, EventLoop


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    made = EventLoop()
    yield made
    made.close()


def test_timers_run_in_order_and_not_when_cancelled(loop: EventLoop) -> None:
    ran: list[str] = []
    loop.call_later(0.002, lambda: ran.append("second"))
    loop.call_later(0.001, lambda: ran.append("first"))
    loop.call_later(0.0015, lambda: ran.append("never")).cancel()
    loop.call_later(0.003, loop.stop)
    loop.run()
    assert ran == ["first", "second"]


def test_a_call_that_schedules_itself_lets_others_in_between(loop: EventLoop) -> None:
    read, write = os.pipe()
    turns = 0

    def again() -> None:
        nonlocal turns
        turns += 1
        if turns == 3:
            os.write(write, b"x")
        loop.call_soon(again)

    loop.add_reader(read, loop.stop)
    loop.call_soon(again)
    loop.run()
    assert turns >= 3
    loop.remove_reader(read)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("timers", [False, True])
def test_many_calls_that_take_long_let_sockets_in_between(loop: EventLoop, timers: bool) -> None:
    read, write = os.pipe()
    os.write(write, b"x")
    order: list[str] = []

    def long() -> None:
        order.append("call")
        sleep(SOON_SECONDS)

    def look() -> None:
        order.append("socket")
        os.read(read, 1)
        loop.remove_reader(read)

    for _ in range(3):
        if timers:
            loop.call_later(0, long)
        else:
            loop.call_soon(long)
    sleep(0.001)  # timers are due now
    loop.step()
    loop.add_reader(read, look)
    for _ in range(4):
        loop.step(0)
    assert order == ["call", "socket", "call", "call"]
    os.close(read)
    os.close(write)


def test_a_failing_callback_ends_nothing(loop: EventLoop, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("this one fails")

    loop.call_soon(fail)
    loop.call_later(0.001, loop.stop)
    with caplog.at_level(logging.ERROR):
        loop.run()
    assert "this one fails" in caplog.text


def test_a_signal_ends_the_loop_even_if_no_handler_runs(loop: EventLoop) -> None:
    """As when it comes while native code is about to sleep."""
    before = signal.getsignal(signal.SIGUSR1)
    try:
        loop.stop_on(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        loop.call_soon(lambda: os.kill(os.getpid(), signal.SIGUSR1))
        loop.run()
    finally:
        signal.signal(signal.SIGUSR1, before)


def compute() -> None:
    until = thread_time() + 1.5 * SLOW_SECONDS
    while thread_time() < until:
        pass


def wait() -> None:
    sleep(1.5 * SLOW_SECONDS)


@pytest.mark.parametrize(("action", "why"), [(compute, "computed"), (wait, "waited")])
def test_a_call_that_holds_the_loop_is_named(
    loop: EventLoop, caplog: pytest.LogCaptureFixture, action: Callable[[], None], why: str
) -> None:
    loop.call_soon(action)
    loop.step(0)
    (line,) = caplog.messages
    assert f" ms and {why}" in line and line.endswith(f"{action.__qualname__} (1 so far)")


def test_cancelled_timers_do_not_pile_up(loop: EventLoop) -> None:
    """A connection makes and cancels one per request, and may ask for hours of patience."""
    ran: list[str] = []
    loop.call_later(0.001, lambda: ran.append("kept"))
    for _ in range(100_000):
        loop.call_later(3600, lambda: ran.append("never")).cancel()
    assert loop.timers_kept < 1000
    loop.call_later(0.002, loop.stop)
    loop.run()
    assert ran == ["kept"]


def test_cancelling_what_ran_or_was_cancelled_counts_for_nothing(loop: EventLoop) -> None:
    ran: list[int] = []
    timers = [loop.call_later(0.0, lambda n=n: ran.append(n)) for n in range(200)]  # type: ignore[misc]
    while len(ran) < len(timers):  # a turn of the loop runs timers for some time only
        loop.step()
    assert ran == list(range(200))
    late = loop.call_later(0.002, loop.stop)
    for timer in timers * 2:
        timer.cancel()
    loop.run()
    assert late.action is None
    assert loop.timers_kept == 0
    for kept in (*range(1, FEW_TIMERS + 1), 0):  # the next one more than may wait drops them all
        loop.call_later(3600, loop.stop).cancel()
        assert loop.timers_kept == kept


def test_a_guest_cannot_fill_the_log_with_failures(
    loop: EventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("again")

    for _ in range(1000):
        loop.call_soon(fail)
    loop.call_later(0, lambda: loop.call_soon(loop.stop))  # behind the last of them
    with caplog.at_level(logging.ERROR):
        loop.run()
    assert 99 <= len(caplog.records) < 110
    assert "(512 so far)" in caplog.text
