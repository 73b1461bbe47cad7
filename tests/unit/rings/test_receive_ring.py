"""Receive rings of both cards whose memory vanishes in parts."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.layout.mlx4 import wqe as mlx4_wqe
from bluebridge.device.layout.mlx5 import wqe as mlx5_wqe
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rings.queue_buffer import QueueBuffer
from bluebridge.device.rings.receive_ring import END_OF_LIST, ReceiveRing
from bluebridge.guest.drivers.common import shared_receives
from tests.models.fake_host import FakeHost
from tests.models.rdma_node import Pair

PAGE = 4096
APART = 1 << 32
ENTRIES = 128
"""Entries of 64 bytes in two pages."""


def entry(number: int) -> bytes:
    return pack(">IIQIIQ", 1 + number, 7, 0, 0, END_OF_LIST, 0)


def ring_at(base: int) -> tuple[FakeHost, ReceiveRing]:
    """A full ring from `base` on whose next entry is three before its end; page 0 is apart."""
    host = FakeHost()
    host.map(APART, PAGE)
    other = host.allocate(PAGE)
    pages = [host.allocate(PAGE)] * (base // PAGE) + [APART, other]
    for number in range(ENTRIES):
        host.poke(pages[base // PAGE + number // 64] + number % 64 * 64, entry(number))
    record = host.allocate(64)
    ring = ReceiveRing(host, 5, 1, QueueBuffer(host, pages, 12), base, 7, 6, record)
    host.poke(record, (ENTRIES - 3).to_bytes(4, "big"))
    while ring.take() is not None:
        pass
    host.poke(record, (2 * ENTRIES - 3).to_bytes(4, "big"))
    return host, ring


@pytest.mark.parametrize("base", [0, PAGE], ids=["connectx5", "connectx3"])
def test_receives_before_one_that_vanished_are_kept(base: int) -> None:
    host, ring = ring_at(base)
    host.unmap(APART)
    assert [work.index for work in ring.take_many(8)] == [125, 126, 127]
    with pytest.raises(DmaError):
        ring.take_many(8)
    host.map(APART, PAGE)
    host.poke(APART, entry(0))
    assert [work.sges for work in ring.take_many(1)] == [[(7, 0, 1)]]


def test_shared_receives_before_one_that_vanished_are_kept() -> None:
    node = Pair().b
    srq = node.create_srq(3, log_size=7)
    node.host.poke(srq.address, pack(">HH", 0, ENTRIES // 2))  # the next one is in the other page
    node.post_srq(srq, 0, [(7, 0, 1)])
    node.post_srq(srq, ENTRIES // 2, [(7, 0, 2)])
    ring = node.adapter.srqs.get(3)
    assert ring is not None
    ring.buffer.pages[1] = APART
    assert [work.sges for work in ring.take_many(8)] == [[(7, 0, 1)]]
    with pytest.raises(DmaError):
        ring.take_many(8)


def test_one_key_ends_the_lists_of_both_cards() -> None:
    assert (
        mlx4_wqe.INVALID_LKEY == mlx5_wqe.INVALID_LKEY == END_OF_LIST == shared_receives.END_OF_LIST
    )
