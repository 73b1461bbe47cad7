"""Stores by the processor: in their order, a slice at a time, with room for a word ahead."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import cast

import pytest

from bluebridge.guest.drivers.ntb import Bridge
from bluebridge.guest.ntrdma.engine.transport import Message
from bluebridge.guest.ntrdma.transports import ntb
from bluebridge.guest.ntrdma.transports.ntb import CpuTransport

SLOW = 0.002
"""Seconds of a store that the server takes one by one."""
STORES = 100


class Window:
    """A window whose stores take long, and are kept in their order."""

    size = 1 << 20

    def __init__(self) -> None:
        self.stored: list[tuple[int, bytes]] = []

    def clear_translation(self) -> None:
        """Do nothing."""

    def store(self, offset: int, data: bytes) -> None:
        """Keep a store."""
        time.sleep(SLOW)
        self.stored.append((offset, bytes(data)))


@pytest.fixture
def window() -> Window:
    """The window that shows memory."""
    return Window()


@pytest.fixture
def transport(window: Window, monkeypatch: pytest.MonkeyPatch) -> CpuTransport:
    """A transport through that window of a bridge of which nothing else matters."""
    monkeypatch.setattr(ntb, "message_of", lambda *_: Message(0, 0))
    bridge = SimpleNamespace(
        windows=[Window(), window],
        doorbells=4,
        function=None,
        every_doorbell=0xF,
        vectors_of=lambda _bits: [0],
        mask=lambda _bits: None,
        set_spad=lambda _index, _value: None,
        enable_link=lambda: None,
    )
    return CpuTransport(cast(Bridge, bridge))


def test_many_stores_leave_room_for_all_else(transport: CpuTransport, window: Window) -> None:
    for number in range(STORES):
        transport.write(4 * number, bytes([number]))
    assert transport.posted == STORES
    transport.flush()
    assert 0 < transport.done < STORES  # the rest waits: nothing else would be served meanwhile
    assert transport.pause == 0
    before = len(window.stored)
    transport.word(0x8000, 7)
    assert window.stored[before] == (0x8000, (7).to_bytes(4, "little"))
    transport.drain()
    assert transport.done == transport.posted
    others = [each for each in window.stored if each[0] != 0x8000]
    assert others == [(4 * number, bytes([number])) for number in range(STORES)]


def test_what_is_given_up_is_never_stored(transport: CpuTransport, window: Window) -> None:
    transport.write(0, b"old")
    transport.abandon()
    assert transport.done == transport.posted == 1
    transport.write(8, b"new")
    transport.flush()
    assert window.stored == [(8, b"new")]
