"""BlueFlame: entries stored into the adapter are carried out unfetched, odd ones are fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.blueflame import LINE
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.uar import (
    BLUEFLAME,
    BLUEFLAME_BUFFER,
    CQ_DOORBELL,
    NUM_UARS,
    PAGE_SIZE,
    SEND_DOORBELL,
    send_doorbell,
)
from bluebridge.device.layout.mlx4.wqe import CQE_REQUEST
from bluebridge.device.mlx4.settings.config import Features
from bluebridge.device.rings.blueflame import Line, OpenLine
from tests.models.hca_driver import UAR_PAGE, Driver
from tests.models.rdma_node import LOG_SQ, SQ_SHIFT, Pair, SendOpcode, inline, remote

PAYLOAD = b"straight from the processor"


class Sender:
    """A connected pair; A posts through BlueFlame into B's memory."""

    def __init__(self) -> None:
        self.pair = Pair().connect()
        self.a, self.qa = self.pair.a, self.pair.qa
        self.target, self.rkey = self.pair.b.memory(4096)
        self.half = 0

    def entry(self, data: bytes = PAYLOAD) -> bytes:
        """An inline RDMA WRITE as `mlx4_post_send` leaves it in the ring, which it does here."""
        segments = remote(self.target, self.rkey) + inline(data)
        index, ds = self.qa.sent, (16 + len(segments)) // 16
        slot, lap = index & (1 << LOG_SQ) - 1, index >> LOG_SQ & 1
        word0 = lap << 31 | (index & 0xFFFF) << 8 | SendOpcode.RDMA_WRITE
        raw = pack(">IIII", word0, self.qa.qpn << 8 | ds, CQE_REQUEST, 0) + segments
        self.a.host.poke(self.qa.address + (slot << SQ_SHIFT), raw)
        self.qa.sent += 1
        return raw

    def store(self, raw: bytes, *, page: int = UAR_PAGE, step: int = 8) -> None:
        """The stores of `mlx4_bf_copy`."""
        for offset, data in stores(raw, step):
            self.write(offset, data, page)
        self.half ^= BLUEFLAME_BUFFER

    def write(self, offset: int, data: bytes, page: int = UAR_PAGE) -> None:
        """One store into the present half of register 0."""
        self.a.hca.bar_write(2, BLUEFLAME.base + page * PAGE_SIZE + self.half + offset, data)

    def ring(self, qpn: int, page: int = UAR_PAGE) -> None:
        """A send doorbell."""
        place = page * PAGE_SIZE + SEND_DOORBELL
        self.a.hca.bar_write(2, place, send_doorbell(qpn).to_bytes(4, "big"))

    def fetched(self) -> int:
        """How many entries the device read from the ring."""
        events = self.a.host.events
        return sum(e.what == What.SQ_WQE and e.kind == Kind.DMA_READ for e in events)

    def reasons(self) -> list[tuple[int, str]]:
        """Pages of the entries that were fetched in place of sent from the register, and why."""
        found = self.a.host.facts(Fact.BLUEFLAME_REFUSED)
        return [(told["page"], told["reason"]) for told in found]

    def statuses(self) -> list[int]:
        """Statuses of new completions of A."""
        return [wc.status for wc in self.a.completions(self.qa)]

    def arrived(self, data: bytes = PAYLOAD) -> bool:
        """Whether B has the data."""
        return self.pair.b.host.peek(self.target, len(data)) == data


def stores(raw: bytes, step: int) -> Iterator[tuple[int, bytes]]:
    """Ascending stores of whole lines."""
    padded = raw.ljust(-(-len(raw) // LINE) * LINE, b"\0")
    return ((at, padded[at : at + step]) for at in range(0, len(padded), step))


def test_the_switch_changes_the_capability_and_nothing_else() -> None:
    with_it = Driver(features=Features(blueflame=True)).query(Opcode.QUERY_DEV_CAP)
    without = Driver().query(Opcode.QUERY_DEV_CAP)
    assert [at for at in range(len(without)) if with_it[at] != without[at]] == [0x4C]
    caps = QUERY_DEV_CAP.unpack(with_it)
    assert (caps["blueflame"], caps["log_bf_reg_size"], caps["log_bf_regs_per_page"]) == (1, 9, 3)


@pytest.mark.parametrize(("size", "log"), [(128, 7), (512, 9), (4096, 12)])
def test_registers_have_the_size_that_is_asked_for(size: int, log: int) -> None:
    features = Features(blueflame=True, blueflame_register=size)
    caps = QUERY_DEV_CAP.unpack(Driver(features=features).query(Opcode.QUERY_DEV_CAP))
    assert (caps["log_bf_reg_size"], caps["log_bf_regs_per_page"]) == (log, 12 - log)


def test_a_register_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="128, 256, 512, 1024, 2048, 4096 bytes, not 100"):
        Features(blueflame_register=100)


@pytest.mark.parametrize("step", [4, 8, 16, 64, 128])
@pytest.mark.parametrize("length", [4, 27, 60, 76])
def test_an_entry_is_carried_out_without_being_fetched(step: int, length: int) -> None:
    sender = Sender()
    data = bytes(range(1, length + 1))
    sender.store(sender.entry(data), step=step)
    assert sender.statuses() == [0]
    assert sender.arrived(data)
    assert sender.fetched() == 0
    (event,) = [e for e in sender.a.host.events if e.kind == Kind.BLUEFLAME]
    assert (event.what, event.obj) == (What.SQ_WQE, sender.qa.qpn)


def test_laps_halves_and_doorbells_in_between() -> None:
    sender = Sender()
    for round_ in range(40):
        data = round_.to_bytes(2, "big") * 8
        if round_ % 5 == 4:
            sender.a.post_send(
                sender.qa, SendOpcode.RDMA_WRITE, remote(sender.target, sender.rkey) + inline(data)
            )
        else:
            sender.store(sender.entry(data))
        assert sender.statuses() == [0]
        assert sender.arrived(data)
    assert sender.fetched() == 8


def test_entries_in_the_ring_come_first() -> None:
    """The index says that another entry is due: the ring is walked, both are fetched."""
    sender = Sender()
    sender.entry(b"first, no doorbell")
    sender.store(sender.entry())
    assert sender.statuses() == [0, 0]
    assert sender.arrived()
    assert sender.fetched() == 2


@pytest.mark.parametrize("page", [0, UAR_PAGE + 1, NUM_UARS - 1])
def test_a_page_of_another_index_means_a_doorbell(page: int) -> None:
    """The first driver on System z did so: all its entries went to the first page."""
    sender = Sender()
    sender.store(sender.entry(), page=page)
    assert (sender.statuses(), sender.fetched()) == ([0], 1)
    assert sender.arrived()
    why = f"the page of QP {sender.qa.qpn:#x} is {UAR_PAGE}"
    assert sender.reasons() == [(page, why)]


def test_every_fallback_says_why() -> None:
    """Also when a driver does it all the time, as that one did."""
    sender = Sender()
    for _ in range(300):
        sender.store(sender.entry(), page=0)
        assert sender.statuses() == [0]
    assert len(sender.reasons()) == 300


def test_the_first_entries_of_a_chain_are_fetched_and_the_log_says_so() -> None:
    sender = Sender()
    first = sender.entry()
    second = sender.entry(b"second")
    sender.store(second)
    sender.store(first)
    assert (sender.statuses(), sender.fetched()) == ([0, 0], 2)
    assert sender.reasons() == [(UAR_PAGE, "entry 1 comes, 0 is due")]
    (known,) = sender.a.host.facts(Fact.BLUEFLAME_KNOWN)
    assert (known["page"], known["entry"], known["qpn"]) == (UAR_PAGE, 0, sender.qa.qpn)


def test_what_closes_a_complete_entry_sends_it() -> None:
    """48 bytes are three quarters of a line; a doorbell of the page sends them on their way."""
    sender = Sender()
    raw = sender.entry(b"short")
    assert len(raw) == 48
    for at in range(0, 48, 8):
        sender.write(at, raw[at : at + 8])
    assert sender.statuses() == []
    sender.ring(sender.qa.qpn)
    assert (sender.statuses(), sender.fetched()) == ([0], 0)


def test_other_processors_do_not_disturb_a_line() -> None:
    """Stores to other pages and registers, doorbells of other queue pairs and of CQs."""
    sender = Sender()
    for offset, data in stores(sender.entry(), 8):
        sender.write(offset, data)
        sender.ring(sender.qa.qpn + 1)
        sender.a.hca.bar_write(2, UAR_PAGE * PAGE_SIZE + CQ_DOORBELL, bytes(8))
        sender.ring(sender.qa.qpn, UAR_PAGE + 1)
        sender.write(offset, b"elsewhere", UAR_PAGE + 1)
        sender.write(offset + 2 * BLUEFLAME_BUFFER, b"a ring's", UAR_PAGE)
    assert (sender.statuses(), sender.fetched()) == ([0], 0)


def test_two_rings_store_into_registers_of_one_page() -> None:
    """mlx4_en gives the rings of two processors registers of one page; each has two buffers."""
    sender = Sender()
    first = list(stores(sender.entry(), 8))
    second = list(stores(sender.entry(b"second"), 8))
    for (offset, data), (_, other) in zip(first, second, strict=True):
        sender.write(offset, data)
        sender.write(offset + 2 * BLUEFLAME_BUFFER, other)
    assert (sender.statuses(), sender.fetched()) == ([0, 0], 0)


@pytest.mark.parametrize("count", [1, 2])
def test_a_block_over_the_end_of_a_register(count: int) -> None:
    """Nothing that is sent rightly, and no reason to forget what is."""
    sender = Sender()
    place = 2 * BLUEFLAME_BUFFER * count - LINE
    sender.write(place, bytes(2 * LINE))
    sender.store(sender.entry())
    assert (sender.statuses(), sender.fetched()) == ([0], 0)


def disordered(sender: Sender, raw: bytes) -> None:
    """The second and third store change places."""
    pieces = list(stores(raw, 8))
    pieces[1], pieces[2] = pieces[2], pieces[1]
    for offset, data in pieces:
        sender.write(offset, data)


def torn(sender: Sender, raw: bytes) -> None:
    """The last line never comes, a new entry begins."""
    for offset, data in list(stores(raw, 8))[:-2]:
        sender.write(offset, data)
    sender.write(0, bytes(8))


def read_between(sender: Sender, raw: bytes) -> None:
    """A read of the page comes in the middle of a line."""
    for offset, data in stores(raw, 8):
        sender.write(offset, data)
        if offset == 24:
            sender.a.hca.bar_read(2, BLUEFLAME.base + UAR_PAGE * PAGE_SIZE, 4)


def doorbell_between(sender: Sender, raw: bytes) -> None:
    """The queue pair's doorbell is rung in the middle of a line."""
    for offset, data in stores(raw, 8):
        sender.write(offset, data)
        if offset == 24:
            sender.ring(sender.qa.qpn)


def unfinished(sender: Sender, raw: bytes) -> None:
    """The stores end in the middle of a line, and time passes."""
    for offset, data in list(stores(raw, 8))[:-2]:
        sender.write(offset, data)
    assert (sender.statuses(), sender.fetched()) == ([], 0)
    sender.a.host.run(3)


def other_half(sender: Sender, raw: bytes) -> None:
    """The entry is spread over both halves."""
    for offset, data in stores(raw, 8):
        sender.write(offset + (BLUEFLAME_BUFFER if offset >= 32 else 0), data)


def repeated(sender: Sender, raw: bytes) -> None:
    """A store comes twice."""
    for offset, data in stores(raw, 8):
        sender.write(offset, data)
        if offset == 24:
            sender.write(offset, data)


STRAYS = {
    disordered: "a store at 0x10 does not follow after 8 bytes of the entry",
    torn: "a store at 0x0 does not follow after 48 bytes of the entry",
    other_half: "a store at 0x120 does not follow after 32 bytes of the entry",
    repeated: "a store at 0x18 does not follow after 32 bytes of the entry",
    read_between: "a read after 32 bytes of the entry",
    doorbell_between: "a doorbell after 32 bytes of the entry",
    unfinished: "a time-out after 48 bytes of the entry",
}


@pytest.mark.parametrize(("stray", "why"), STRAYS.items(), ids=[f.__name__ for f in STRAYS])
def test_stores_that_are_not_well_formed_mean_a_doorbell(
    stray: Callable[[Sender, bytes], None], why: str
) -> None:
    sender = Sender()
    stray(sender, sender.entry())
    assert (sender.statuses(), sender.fetched()) == ([0], 1)
    assert sender.arrived()
    assert sender.reasons() == [(UAR_PAGE, why)]
    sender.store(sender.entry(b"next"))
    assert (sender.statuses(), sender.fetched()) == ([0], 1)
    assert sender.arrived(b"next")


def test_an_entry_of_no_size_is_fetched() -> None:
    sender = Sender()
    raw = bytearray(sender.entry())
    raw[7] &= 0xC0
    sender.store(bytes(raw))
    assert (sender.statuses(), sender.fetched()) == ([0], 1)


def test_pages_of_nobody_are_harmless() -> None:
    sender = Sender()
    raw = bytearray(sender.entry())
    raw[4:7] = (0x777777).to_bytes(3, "big")
    sender.store(bytes(raw))
    sender.write(8, bytes(8))
    sender.a.hca.bar_write(2, (16 << 20) - 8, bytes(8))
    assert sender.statuses() == []


def test_a_flood_of_oddities_does_not_fill_the_log() -> None:
    sender = Sender()
    before = len(sender.a.host.told)
    for _ in range(500):
        sender.store(bytes(64))
    assert len(sender.a.host.told) - before < 50


def test_the_rest_comes_when_it_is_asked_for() -> None:
    gathered = OpenLine()
    assert list(gathered.store(8, b"12345678")) == []
    assert gathered.close("a read") == Line(8, b"12345678", "a read")
    assert gathered.close("a read").data == b""


@given(st.lists(st.tuples(st.integers(0, 511), st.binary(min_size=1, max_size=130)), max_size=30))
def test_no_byte_is_lost_or_made_up(stores: list[tuple[int, bytes]]) -> None:
    """Whatever is stored leaves in its order, in lines that do not cross a border."""
    gathered = OpenLine()
    found = [line for place, data in stores for line in gathered.store(place, data)]
    found.append(gathered.close("the end"))
    sent = [(line.place + at, byte) for line in found for at, byte in enumerate(line.data)]
    assert sent == [(place + at, byte) for place, data in stores for at, byte in enumerate(data)]
    for line in found:
        assert (line.place & 63) + len(line.data) <= LINE
