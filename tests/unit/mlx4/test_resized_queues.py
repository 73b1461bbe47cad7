"""Completion queues that move to another ring, read as libmlx4 reads them.

Software is that of `cq.c` in libmlx4: `get_sw_cqe`, `mlx4_get_outstanding_cqes`,
`mlx4_cq_resize_copy_cqes`.
"""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bluebridge.device.layout.mlx4 import uar
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC
from bluebridge.device.layout.mlx4.cqe import CQE, CQE_SIZE, OPCODE_RESIZE
from bluebridge.device.layout.mlx4.eqe import EventType
from bluebridge.device.mlx4.settings.config import Features
from tests.models.hca_driver import COMP_EQN, UAR_PAGE, Driver

CQN = 0x91
LOG_SIZES = range(13)
INDICES = 1 << 24
COUNT = 4 << LOG_SIZES[-1]
"""So many entries differ from each other: more than any case has unread."""
SEED = 42


@cache
def entries() -> list[bytes]:
    """Entries with a number."""
    return [bytes(CQE.pack(qpn=0x240, byte_count=number)) for number in range(COUNT)]


class Rings(Driver):
    """An adapter with memory for two rings, whose entries have 32 or 64 bytes."""

    def __init__(self, *, large: bool) -> None:
        super().__init__(features=Features(large_cqes=True))
        self.large = large
        self.stride = CQE_SIZE << large
        self.start()
        self.places = [self.buffer(self.stride << LOG_SIZES[-1]) for _ in range(2)]
        self.record = self.host.allocate(64, 64)

    def init_mailbox(self) -> bytearray:
        """INIT_HCA, perhaps with entries of 64 bytes."""
        mailbox = super().init_mailbox()
        INIT_HCA.set(mailbox, "eqe_cqe_size", self.large << 30)
        return mailbox


@cache
def rings(large: bool) -> Rings:
    """The adapter that all cases of a size of entries share."""
    return Rings(large=large)


class Software:
    """A queue of `1 << log_size` entries, both sides of which are at `index`."""

    def __init__(self, rings: Rings, log_size: int, index: int = 0) -> None:
        self.rings = rings
        self.stride = rings.stride
        self.size = 1 << log_size
        self.place = 0
        self.consumer = index
        self.posted = self.read = 0  # entries that were written and polled, since the beginning
        rings.host.events.clear()
        rings.adapter.cqs.destroy(CQN)
        rings.poll_eq(rings.comp_eq)
        rings.eq_doorbell(rings.comp_eq)
        self._lay(index)
        self._store_consumer()
        context = CQC.pack(
            {"log_size": log_size, "uar": UAR_PAGE, "eqn": COMP_EQN},
            mtt_addr=rings.places[0][1],
            doorbell_record=rings.record,
        )
        rings.command(Opcode.SW2HW_CQ, bytes(context), CQN, 1)
        self.queue = rings.completion_queue(CQN)
        self.queue.producer = self.queue.consumer = self.queue.notified = index

    def _lay(self, index: int) -> None:
        """The ring as it is when all entries before `index` were written and polled."""
        slot = index % self.size
        lap = bool(index & self.size)
        owners = [lap] * slot + [not lap] * (self.size - slot)
        image = b"".join(bytes(self.stride - 1) + bytes((owner << 7,)) for owner in owners)
        self.rings.host.poke(self.rings.places[0][0], image)

    def _store_consumer(self) -> None:
        self.rings.host.poke(self.rings.record, (self.consumer % INDICES).to_bytes(4, "big"))

    def post(self, count: int) -> None:
        """The adapter completes so many work requests."""
        new = [entries()[(self.posted + more) % COUNT] for more in range(count)]
        self.posted += count
        if count == 1:
            self.queue.post(new[0])
        else:
            self.queue.post_many(new)

    def image(self) -> bytes:
        """The ring as software sees it."""
        return self.rings.host.peek(self.rings.places[self.place][0], self.size * self.stride)

    def outstanding(self) -> int:
        """The number of entries that are software's, from the consumer index on."""
        owners = self.image()[self.stride - 1 :: self.stride]
        index = self.consumer
        while bool(owners[index % self.size] & 0x80) == bool(index & self.size):
            index += 1
        return index - self.consumer

    def poll(self, most: int = INDICES) -> None:
        """`ibv_poll_cq`: the next entries are those that come next, none is left out or made up."""
        count = min(most, self.outstanding())
        image, found = self.image(), []
        for index in range(self.consumer, self.consumer + count):
            at = (index % self.size + 1) * self.stride - CQE_SIZE
            found.append(image[at : at + CQE_SIZE - 1])
        expected = [entries()[(self.read + more) % COUNT][:-1] for more in range(count)]
        assert found == expected
        self.consumer += count
        self.read += count
        self._store_consumer()

    def poll_all(self) -> None:
        """Everything that was posted is there."""
        self.poll()
        assert self.read == self.posted

    def command(self, log_size: int) -> Status:
        """MODIFY_CQ alone."""
        mtt = self.rings.places[1 - self.place][1]
        context = bytes(CQC.pack(log_size=log_size, mtt_addr=mtt))
        return self.rings.try_command(Opcode.MODIFY_CQ, context, CQN)[0]

    def move(self, log_size: int) -> None:
        """Do what follows the command: copy unread entries, one place further, as of their lap.

        The doorbell record has the index of before until that is done.
        """
        old, new, stride = self.image(), self.rings.places[1 - self.place][0], self.stride
        index, size = self.consumer, 1 << log_size
        while True:
            at = index % self.size * stride
            entry = bytearray(old[at : at + stride])
            if entry[-1] & 0x1F == OPCODE_RESIZE:
                break
            entry[-1] = entry[-1] & 0x7F | bool(index + 1 & size) << 7
            self.rings.host.poke(new + (index + 1) % size * stride, entry)
            index += 1
        self.consumer += 1
        self.place, self.size = 1 - self.place, size
        self._store_consumer()

    def broken(self) -> bool:
        """Whether the adapter has given the queue up."""
        return bool(self.rings.events(EventType.CQ_ERROR))


def check(large: bool, sizes: tuple[int, int], index: int, unread: int, between: int) -> None:
    """A queue at `index` with so many unread entries changes its size.

    `between` entries come after the command and before software has moved.
    """
    old, new = (1 << log_size for log_size in sizes)
    software = Software(rings(large), sizes[0], index)
    software.post(unread)
    before = software.image()
    status = software.command(sizes[1])
    if unread > new or unread == old:
        assert status == (Status.BAD_PARAM if unread > new else Status.RESOURCE_BUSY)
        assert software.image() == before
    else:
        assert status == Status.OK
        software.post(between)
        software.move(sizes[1])
        assert software.outstanding() == unread + between
        software.poll(unread // 2)
    for _ in range(2):  # each time until the ring is full
        software.post(software.size - (software.posted - software.read))
        software.poll_all()
    assert not software.broken()


@pytest.mark.parametrize("large", [False, True], ids=["32 bytes", "64 bytes"])
def test_no_entry_is_lost_doubled_or_made_up_between_any_two_sizes(large: bool) -> None:
    random = Random(SEED)
    for old in LOG_SIZES:
        for new in LOG_SIZES:
            index = random.randrange(INDICES)
            unread = random.randrange(min(1 << old, 1 << new))
            check(large, (old, new), index, unread, random.randint(0, (1 << new) - unread))


log_sizes = st.integers(0, 6)


@settings(max_examples=150)
@given(
    large=st.booleans(),
    sizes=st.tuples(log_sizes, log_sizes),
    index=st.one_of(st.integers(0, 300), st.integers(INDICES - 300, INDICES - 1)),
    data=st.data(),
)
def test_no_entry_is_lost_at_any_index_with_anything_unread(
    large: bool, sizes: tuple[int, int], index: int, data: st.DataObject
) -> None:
    """From none to all, more than the new ring has places for included."""
    unread = data.draw(st.integers(0, 1 << sizes[0]), "unread")
    between = data.draw(st.integers(0, max(0, (1 << sizes[1]) - unread)), "between")
    check(large, sizes, index, unread, between)


def announced(rings: Rings) -> int:
    """Completion events since the last call."""
    events = rings.poll_eq(rings.comp_eq)
    rings.eq_doorbell(rings.comp_eq)
    return len(events)


def arm(software: Software, sn: int, command: int = uar.CQ_ARM_NEXT) -> int:
    """`ibv_req_notify_cq`; the events that it brings at once."""
    value = uar.cq_doorbell(sn, command, CQN, software.consumer)
    offset = UAR_PAGE * uar.PAGE_SIZE + uar.CQ_DOORBELL
    software.rings.hca.bar_write(2, offset, value.to_bytes(8, "big"))
    return announced(software.rings)


@pytest.mark.parametrize("command", [uar.CQ_ARM_NEXT, uar.CQ_ARM_SOLICITED])
def test_an_entry_is_announced_once_wherever_it_lies_by_then(command: int) -> None:
    software = Software(rings(large=False), 4, index=13)
    assert arm(software, 1, command) == 0
    software.queue.post(entries()[0], True)
    software.posted += 1
    assert announced(software.rings) == 1
    assert software.command(6) == Status.OK
    software.move(6)
    assert arm(software, 2, command) == 0
    software.queue.post(entries()[1], True)
    software.posted += 1
    assert announced(software.rings) == 1
    software.poll_all()


@pytest.mark.parametrize("command", [uar.CQ_ARM_NEXT, uar.CQ_ARM_SOLICITED])
def test_an_entry_that_nobody_announced_is_so_after_the_move(command: int) -> None:
    software = Software(rings(large=False), 4, index=13)
    software.queue.post(entries()[0], True)
    software.posted += 1
    assert software.command(2) == Status.OK
    software.move(2)
    assert arm(software, 1, command) == 1
    software.poll_all()
    assert arm(software, 2, command) == 0
