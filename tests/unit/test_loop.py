"""The server's loop."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from device.pci.loop import EventLoop


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


def test_a_failing_callback_ends_nothing(loop: EventLoop, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("this one fails")

    loop.call_soon(fail)
    loop.call_later(0.001, loop.stop)
    with caplog.at_level(logging.ERROR):
        loop.run()
    assert "this one fails" in caplog.text
