"""Event queues of both cards whose backlog is long: a doorbell takes a share of the loop only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode as Mlx4Opcode
from bluebridge.device.layout.mlx4.eqe import EQE_SIZE
from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.event_queues import CREATE_EQ, EQC, EQE_BYTES
from bluebridge.device.rings.event_ring import PORTION, EventRings
from tests.models.fake_host import FakeHost
from tests.models.hca_driver import Driver
from tests.models.mlx5_node import Mlx5Node

LOG_SIZE, MORE, VECTOR, AT = 13, 5000, 2, 8
SIZE = 1 << LOG_SIZE


class Card:
    """An event queue of `SIZE` entries, with its host and what destroys it."""

    def __init__(
        self, host: FakeHost, eqs: EventRings, eqn: int, entry: int, destroy: Callable[[], object]
    ) -> None:
        queue = eqs.get(eqn)
        assert queue is not None
        self.host, self.eqs, self.queue, self.entry, self.destroy = host, eqs, queue, entry, destroy

    def overfill(self) -> None:
        """Post as many events as there are entries, and `MORE`."""
        for number in range(SIZE + MORE):
            eqe = bytes(AT) + number.to_bytes(4, "big") + bytes(self.entry - AT - 4)
            self.eqs.append(self.queue, eqe)
        self.host.take_interrupts()

    def number(self, index: int) -> int:
        """The number in the event with that index."""
        address = self.queue.buffer.address(index % SIZE * self.entry)
        return int.from_bytes(self.host.peek(address + AT, 4), "big")


def connectx3() -> Card:
    driver = Driver().start()
    driver.create_eq(7, VECTOR, LOG_SIZE)
    return Card(
        driver.host,
        driver.adapter.eqs,
        7,
        EQE_SIZE,
        lambda: driver.command(Mlx4Opcode.HW2SW_EQ, 0, 7, 1),
    )


def connectx5() -> Card:
    node = Mlx5Node(1)
    context = bytes(EQC.pack(log_size=LOG_SIZE, uar_page=node.uar, vector=VECTOR))
    address = node.host.allocate(EQE_BYTES << LOG_SIZE)
    pages = node.pages(address, (EQE_BYTES << LOG_SIZE) // 4096)
    eqn = node.make(Opcode.CREATE_EQ, bytes(CREATE_EQ.pack(context=context)) + pages)

    def destroy() -> None:
        node.command(Opcode.DESTROY_EQ, number=eqn)

    return Card(node.host, node.adapter.eqs, eqn, EQE_BYTES, destroy)


@pytest.fixture(params=[connectx3, connectx5])
def card(request: pytest.FixtureRequest) -> Card:
    card: Card = request.param()
    card.overfill()
    return card


def test_a_long_backlog_is_written_in_portions_and_in_order(card: Card) -> None:
    queue = card.queue
    card.eqs.consume(queue, SIZE, True)
    assert queue.producer == SIZE + PORTION
    assert card.host.take_interrupts() == [VECTOR]
    card.eqs.append(queue, bytes(AT) + (SIZE + MORE).to_bytes(4, "big") + bytes(card.entry - 12))
    turns = 0
    while queue.backlog:
        before = queue.producer
        card.host.turn()
        assert 0 < queue.producer - before <= PORTION
        turns += 1
    assert turns == -(-(MORE + 1) // PORTION) - 1
    assert [card.number(index) for index in range(SIZE, SIZE + MORE + 1)] == [
        *range(SIZE, SIZE + MORE + 1)
    ]


def test_what_came_later_interrupts_a_queue_that_was_armed_meanwhile(card: Card) -> None:
    queue = card.queue
    card.eqs.consume(queue, SIZE, True)
    card.host.take_interrupts()
    card.eqs.consume(queue, SIZE + PORTION, False)
    card.eqs.consume(queue, queue.producer, True)
    card.host.take_interrupts()
    while queue.backlog:
        card.host.turn()
    assert queue.producer == SIZE + MORE


def test_a_queue_that_was_destroyed_gets_no_more(card: Card) -> None:
    queue = card.queue
    card.eqs.consume(queue, SIZE, False)
    card.destroy()
    card.host.turn()
    assert queue.producer == SIZE + PORTION
