"""BlueFlame on a ConnectX-5: registers that take doorbells as well as whole entries."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5.caps import CapGroup
from bluebridge.device.layout.mlx5.commands import Opcode
from bluebridge.device.layout.mlx5.cqe import CQE
from bluebridge.device.layout.mlx5.init_segment import BLUEFLAME_BUFFER, SEND_DOORBELL, UAR_BYTES
from bluebridge.device.layout.mlx5.wqe import INLINE, SendOpcode
from bluebridge.device.mlx5.registers.send_registers import QUIET_SECONDS
from bluebridge.device.mlx5.settings.capabilities import Capabilities
from tests.models.mlx5_node import SIGNALLED
from tests.models.mlx5_pair import LOG_SQ, RoceNode

PAYLOAD = b"straight from the processor"


class StoringNode(RoceNode):
    """A guest whose adapter offers BlueFlame."""

    blueflame = True


class Sender:
    """A connected pair; the software of `a` posts as libmlx5 does."""

    def __init__(self, kind: type[RoceNode] = StoringNode) -> None:
        fabric = LocalFabric()
        self.node, peer = kind(1, fabric), RoceNode(2, fabric)
        self.a, self.b = self.node.make_pair(), peer.make_pair()
        self.a.connect(self.b)
        self.b.connect(self.a)
        self.half = 0

    def inline(self, data: bytes = PAYLOAD) -> bytes:
        """Write an entry with inline data into the ring, and count it; its bytes."""
        segment = pack(">I", INLINE | len(data)) + data
        return self.write(segment.ljust(-(-len(segment) // 16) * 16, b"\0"))

    def write(self, segments: bytes, opcode: int = SendOpcode.SEND) -> bytes:
        """Write an entry into the ring, and count it; its bytes."""
        place = self.a.sq.address + self.a.sq.posted % (1 << LOG_SQ) * 64
        self.node.wqe(self.a.sq, segments, opcode, SIGNALLED)
        return self.node.host.peek(place, 16 + len(segments))

    def store(self, raw: bytes, *, step: int = 8, page: int | None = None) -> None:
        """Store an entry in whole lines, and take the other half next."""
        whole = raw.ljust(-(-len(raw) // 64) * 64, b"\0")
        for at in range(0, len(whole), step):
            self.put(at, whole[at : at + step], page)
        self.half ^= BLUEFLAME_BUFFER

    def put(self, offset: int, data: bytes, page: int | None = None) -> None:
        """One store into the present half of the first register."""
        place = (self.node.uar if page is None else page) * UAR_BYTES + SEND_DOORBELL
        self.node.hca.bar_write(0, place + self.half + offset, data)

    def ring(self, raw: bytes) -> None:
        """The first 8 bytes alone, and the other half next."""
        self.put(0, raw[:8])
        self.half ^= BLUEFLAME_BUFFER

    def fetched(self) -> int:
        """How many entries the device read from the ring."""
        events = self.node.host.events
        return sum(each.what == What.SQ_WQE and each.kind == Kind.DMA_READ for each in events)

    def taken(self) -> list[int]:
        """Where the entries were that the device took from a register."""
        events = self.node.host.events
        return [each.address % UAR_BYTES for each in events if each.kind == Kind.BLUEFLAME]

    def sent(self) -> list[int]:
        """The counters of the new completions of sends."""
        return [CQE.get(each, "wqe_counter") for each in self.a.sent()]

    def reasons(self) -> list[str]:
        """Why entries were fetched in place of sent from the register."""
        return [each["reason"] for each in self.node.host.facts(Fact.BLUEFLAME_REFUSED)]


def test_the_switch_changes_a_bit_and_a_reset_keeps_it() -> None:
    with_it, without = Capabilities(blueflame=True), Capabilities()
    assert (with_it.get(CapGroup.GENERAL, "bf"), without.get(CapGroup.GENERAL, "bf")) == (1, 0)
    with_it.reset()
    assert with_it.get(CapGroup.GENERAL, "bf") == 1
    assert with_it.get(CapGroup.GENERAL, "log_bf_reg_size") == 9


@pytest.mark.parametrize("step", [4, 8, 16, 64])
@pytest.mark.parametrize("length", [4, 27, 44, 150, 236])
def test_an_entry_is_carried_out_without_being_fetched(step: int, length: int) -> None:
    sender = Sender()
    data = bytes(number & 0xFF for number in range(1, length + 1))
    buffer = sender.b.receive()
    sender.store(sender.inline(data), step=step)
    assert sender.sent() == [0]
    assert sender.b.node.host.peek(buffer, length) == data
    assert (sender.fetched(), sender.taken()) == (0, [SEND_DOORBELL])


def test_laps_halves_and_doorbells_in_between() -> None:
    sender = Sender()
    for number in range(3 << LOG_SQ):
        sender.b.receive()
        if number % 5 == 4:
            sender.ring(sender.write(sender.a.data(PAYLOAD)))
        else:
            sender.store(sender.inline())
        assert sender.sent() == [number]
    assert sender.fetched() == (3 << LOG_SQ) // 5
    assert set(sender.taken()) == {SEND_DOORBELL, SEND_DOORBELL + BLUEFLAME_BUFFER}
    assert not sender.reasons()


def test_a_chain_rings_once_for_all() -> None:
    """The doorbell is the head of its last entry, inline or not."""
    sender = Sender()
    for _ in range(3):
        sender.b.receive()
    sender.inline(b"first")
    sender.inline(b"second")
    sender.ring(sender.inline(b"third"))
    assert sender.sent() == [0, 1, 2]
    assert sender.fetched() == 3


def test_a_doorbell_of_another_index_rings_at_once() -> None:
    """How far to go is in the doorbell record; the index need not be right."""
    sender = Sender()
    for number in range(3):
        sender.b.receive()
        sender.write(sender.a.data(PAYLOAD))
        sender.put(0, pack(">II", 0, sender.a.number << 8))
        assert sender.sent() == [number]


def test_entries_behind_a_stored_one_wait_for_their_own_stores() -> None:
    """Software is ahead: both are in the ring and counted before the first stores arrive."""
    sender = Sender()
    for _ in range(2):
        sender.b.receive()
    first, second = sender.inline(b"first"), sender.inline(b"second")
    sender.store(first)
    assert sender.sent() == [0]
    sender.store(second)
    assert (sender.sent(), sender.fetched()) == ([1], 0)


def test_entries_of_no_operation_are_taken_as_they_are_stored() -> None:
    """The driver's test of write combining: only the stored ones ask for a completion."""
    sender = Sender()
    for number in range(4):
        raw = bytearray(sender.write(b"", SendOpcode.NOP))
        slot = sender.a.sq.address + number % (1 << LOG_SQ) * 64
        sender.node.host.poke(slot + 8, bytes(4))
        sender.store(bytes(raw))
    assert sender.sent() == [0, 1, 2, 3]
    assert sender.fetched() == 0


def test_software_that_only_rings_waits_once() -> None:
    """With MLX5_SHUT_UP_BF libmlx5 rings for inline data, too."""
    sender = Sender()
    for number in range(4):
        sender.b.receive()
        sender.ring(sender.inline())
        sender.node.host.run()
        if not number:
            assert not sender.sent()
            sender.node.host.run(2 * QUIET_SECONDS)
        assert sender.sent() == [number]
    assert sender.fetched() == 4
    assert not sender.reasons()


def test_software_that_stores_all_entries_is_fetched_once() -> None:
    """UCX stores entries whose data are elsewhere, too."""
    sender = Sender()
    for number in range(4):
        sender.b.receive()
        sender.store(sender.write(sender.a.data(PAYLOAD)))
        assert sender.sent() == [number]
    assert sender.fetched() == 1
    assert len(sender.taken()) == 3


def test_habits_are_those_of_one_register_and_end_with_the_page() -> None:
    sender = Sender()
    sender.b.receive()
    sender.ring(sender.inline())
    sender.node.host.run(2 * QUIET_SECONDS)
    assert sender.sent() == [0]
    first, sender.half = sender.half, 2 * BLUEFLAME_BUFFER
    sender.b.receive()
    sender.store(sender.inline())
    assert (sender.sent(), sender.fetched()) == ([1], 1)
    sender.half = first
    sender.put(0, sender.inline()[:4])
    sender.node.command(Opcode.DEALLOC_UAR, number=sender.node.uar)
    assert sender.node.make(Opcode.ALLOC_UAR) == sender.node.uar
    sender.b.receive()
    sender.a.sq.posted -= 1
    sender.store(sender.inline())
    assert (sender.sent(), sender.fetched()) == ([2], 1), "as if nobody had had it"


def test_what_stops_in_the_middle_is_fetched_and_the_log_says_so() -> None:
    sender = Sender()
    sender.b.receive()
    raw = sender.inline()
    for at in range(0, 32, 8):
        sender.put(at, raw[at : at + 8])
    assert not sender.sent()
    sender.node.host.run(2 * QUIET_SECONDS)
    assert (sender.sent(), sender.fetched()) == ([0], 1)
    assert sender.reasons() == ["a time-out after 32 bytes of the entry"]


def test_a_read_pushes_stores_out() -> None:
    sender = Sender()
    sender.b.receive()
    raw = sender.inline()
    sender.put(0, raw[:8])
    assert not sender.sent()
    sender.node.hca.bar_read(0, sender.node.uar * UAR_BYTES, 4)
    assert (sender.sent(), sender.fetched()) == ([0], 1)


def test_another_page_means_a_doorbell() -> None:
    sender = Sender()
    page = sender.node.make(Opcode.ALLOC_UAR)
    sender.b.receive()
    sender.store(sender.inline(), page=page)
    assert (sender.sent(), sender.fetched()) == ([0], 1)
    assert sender.reasons() == [f"the page of QP {sender.a.number:#x} is {sender.node.uar}"]


def test_a_queue_that_is_not_ready_keeps_its_entry_in_the_ring() -> None:
    """A message without a receive is sent again later; what is stored meanwhile has to wait."""
    sender = Sender()
    sender.store(sender.inline(b"early"))
    sender.store(sender.inline(b"later"))
    assert not sender.sent()
    for _ in range(2):
        sender.b.receive()
    sender.node.host.run(1)
    assert sender.sent() == [0, 1]


def test_after_a_reset_nothing_is_left_of_an_entry() -> None:
    sender = Sender()
    raw = sender.inline()
    sender.put(0, raw[:8])
    sender.node.hca.reset()
    sender.node.host.run(1)
    assert not sender.fetched()


def test_stores_of_nobody_are_harmless() -> None:
    sender = Sender()
    raw = bytearray(sender.inline())
    raw[4:7] = (0x777777).to_bytes(3, "big")
    sender.store(bytes(raw))
    sender.put(8, bytes(8))
    sender.node.hca.bar_write(0, (32 << 20) - 8, bytes(8))
    sender.node.host.run(1)
    assert not sender.sent()


def test_without_it_the_first_8_bytes_ring_and_the_rest_is_nothing() -> None:
    sender = Sender(RoceNode)
    sender.b.receive()
    sender.store(sender.inline())
    assert (sender.sent(), sender.fetched(), sender.taken()) == ([0], 1, [])
