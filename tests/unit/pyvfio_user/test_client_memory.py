"""The files that clients offer as their memory: each descriptor is closed once."""

from __future__ import annotations

import _thread
import os
import time
from typing import NoReturn, cast

import pytest

from bluebridge.device.pyvfio_user._files import Closer
from bluebridge.device.pyvfio_user._library import Library
from bluebridge.device.pyvfio_user.memory import DmaMap

PAGE = 4096


def _map() -> DmaMap:
    """Without libvfio-user, which only regions that it maps need."""
    return DmaMap(cast(Library, object()), Closer())


def _opened(before: set[str], seconds: float = 5.0) -> set[str]:
    """Descriptors that are open now and were not before, once threads have closed theirs."""
    end = time.monotonic() + seconds
    while True:
        new = {each for each in os.listdir("/proc/self/fd") if each not in before}
        new = {each for each in new if os.path.lexists(f"/proc/self/fd/{each}")}
        if not new or time.monotonic() > end:
            return new
        time.sleep(0.001)


def _offer(memory: DmaMap, times: int) -> None:
    """As a client does whose messages are valid and which the library refuses to map."""
    fd = os.memfd_create("guest")
    for _ in range(times):
        memory.offer(PAGE, fd, 0)
    os.close(fd)


def test_offers_for_one_address_that_are_refused_leave_no_descriptor() -> None:
    before = set(os.listdir("/proc/self/fd"))
    memory = _map()
    _offer(memory, 3)
    memory.close_unmapped()
    assert _opened(before) == set()


def refuse(*_: object) -> NoReturn:
    raise RuntimeError("can't start new thread")


def test_files_are_closed_where_there_is_no_thread_left(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    memory = _map()
    _offer(memory, 1)
    memory.close_unmapped()
    assert _opened(before) == set()


def test_files_for_which_there_is_no_thread_are_closed_when_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = set(os.listdir("/proc/self/fd"))
    closer, start = Closer(), _thread.start_new_thread
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    closer.close(os.pipe())
    assert _opened(before, seconds=0.0)
    monkeypatch.setattr(_thread, "start_new_thread", start)
    closer.close(os.pipe())
    assert _opened(before) == set()
