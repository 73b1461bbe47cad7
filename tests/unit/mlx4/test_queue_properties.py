"""Queues in every page size, at every offset, of every size: what is theirs is written, no more."""

from __future__ import annotations

from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.cqe import CQE
from bluebridge.device.layout.mlx4.eqe import CMD_EQE, EventType
from bluebridge.device.layout.mlx4.wqe import CQE_REQUEST, CTRL, DATA, INVALID_LKEY, SendOpcode
from tests.models.table_driver import KEY, PAGE, QPN, SRQN, Layout, Place, TableDriver

SIGNALLED = CQE_REQUEST >> 2
MESSAGE = 16
PLAIN = Layout(12, 0, 0, True)


def _layouts(unit: int) -> st.SearchStrategy[Layout]:
    """Places of rings that begin at a multiple of `unit` bytes of their page."""
    return st.builds(
        Layout,
        shift=st.integers(12, 17),
        start=st.integers(0, PAGE // unit - 1).map(lambda number: unit * number),
        seed=st.integers(0, 1000),
        by_command=st.booleans(),
    )


layouts, work_layouts = _layouts(32), _layouts(64)


@settings(max_examples=60)
@given(layout=layouts, log_size=st.integers(0, 9), count=st.integers(1, 40))
@example(layout=Layout(12, 4064, 1, True), log_size=7, count=40)
def test_events_are_where_the_context_says(layout: Layout, log_size: int, count: int) -> None:
    driver = TableDriver(seed=layout.seed)
    before = driver.image()
    status, place = driver.try_eq(log_size, layout)
    assert status is Status.OK
    driver.command(Opcode.MAP_EQ, 1 << EventType.CMD, 6)
    for index in range(count):
        driver.token = index + 1
        driver.post(Opcode.NOP, event=True)
        driver.finish()
        entry = driver.host.peek(place.address(index % (1 << log_size) * 32), 32)
        assert CMD_EQE.get(entry, "token") == index + 1
        assert entry[31] >> 7 == index >> log_size & 1
        driver.write32(0x1000 + 0x800 + 8 * 2, index + 1, 2)  # queue 6: the third of page 1
    moved = _translations(driver, place)
    assert driver.strays(before, *moved) == []


@settings(max_examples=60)
@given(
    layout=layouts,
    log_size=st.integers(0, 9),
    count=st.integers(1, 40),
    large=st.booleans(),
    noise=st.booleans(),
)
@example(layout=Layout(13, 4032, 3, False), log_size=6, count=40, large=True, noise=False)
def test_completions_are_where_the_context_says(
    layout: Layout, log_size: int, count: int, large: bool, noise: bool
) -> None:
    """Bits that no table has say nothing."""
    driver = TableDriver(large=large, seed=layout.seed, noise=noise)
    driver.event_queue()
    before = driver.image()
    status, place = driver.try_cq(log_size, layout)
    if large and layout.start % 64:
        assert status is Status.BAD_PARAM
        assert driver.strays(before, *_translations(driver, place)) == []
        return
    assert status is Status.OK
    sends = driver.place(64 * 64, PLAIN)
    driver.connect(sends, log_sq_size=6, log_sq_stride=2)
    for slot in range(64):
        driver.host.poke(sends.address(64 * slot), b"\x80")
    entry = driver.entry
    for index in range(count):
        nop = CTRL.pack(opcode=SendOpcode.NOP, ds=1, cqe=SIGNALLED)
        driver.host.poke(sends.address(64 * index), nop)
        driver.ring_doorbell()
        at = index % (1 << log_size) * entry + entry - 32
        found = driver.host.peek(place.address(at), 32)
        assert (CQE.get(found, "qpn"), CQE.get(found, "wqe_index")) == (QPN, index)
        assert CQE.get(found, "owner") == index >> log_size & 1
        driver.tell(driver.records[-1], index + 1)
    moved = _translations(driver, place, sends)
    assert driver.strays(before, *moved, sends, _word(driver.records[-1])) == []


@settings(max_examples=60)
@given(
    layout=work_layouts,
    sends=st.tuples(st.integers(0, 6), st.integers(2, 4)),
    receives=st.tuples(st.integers(0, 6), st.integers(0, 4)),
    count=st.integers(1, 40),
    noise=st.booleans(),
)
@example(layout=Layout(12, 4032, 5, True), sends=(3, 2), receives=(4, 4), count=40, noise=True)
@example(layout=Layout(12, 64, 5, False), sends=(3, 2), receives=(2, 0), count=20, noise=False)
def test_messages_between_the_rings_of_a_queue_pair(
    layout: Layout, sends: tuple[int, int], receives: tuple[int, int], count: int, noise: bool
) -> None:
    """The ring of the longer entries is first, as `inc/qp.h` and the PRM have it."""
    driver = TableDriver(seed=layout.seed, noise=noise)
    driver.event_queue()
    assert driver.try_cq(8, PLAIN)[0] is Status.OK
    (log_sq, sq_stride), (log_rq, rq_stride) = sends, receives
    sq_bytes, rq_bytes = 16 << log_sq + sq_stride, 16 << log_rq + rq_stride
    place = driver.place(sq_bytes + rq_bytes, layout)
    sq_at, rq_at = (rq_bytes, 0) if rq_stride > sq_stride else (0, sq_bytes)
    record = driver.record()
    fields = {"log_sq_size": log_sq, "log_sq_stride": sq_stride, "doorbell_record": record}
    driver.connect(place, log_rq_size=log_rq, log_rq_stride=rq_stride, **fields)
    source, target = driver.host.allocate(PAGE), driver.host.allocate(PAGE)
    for slot in range(1 << log_sq):
        driver.host.poke(place.address(sq_at + (slot << sq_stride + 4)), b"\x80")
    for index in range(count):
        slot = index % (1 << log_rq)
        _post_receive(driver, place, rq_at + (slot << rq_stride + 4), rq_stride, target + index)
        driver.tell(record, index + 1)
        _send(driver, place, sq_at, sends, index, source)
        assert driver.host.peek(target + index, MESSAGE) == _message(index)
    assert driver.adapter.qps.get(QPN) is not None


@settings(max_examples=50)
@given(
    layout=work_layouts,
    log_size=st.integers(1, 6),
    log_stride=st.integers(1, 5),
    count=st.integers(1, 30),
)
def test_a_shared_receive_queue_in_any_order(
    layout: Layout, log_size: int, log_stride: int, count: int
) -> None:
    """Its entries are a list that software may link as it likes."""
    driver = TableDriver(seed=layout.seed, noise=True)
    driver.event_queue()
    assert driver.try_cq(8, PLAIN)[0] is Status.OK
    status, place = driver.try_srq(log_size, log_stride, layout)
    assert status is Status.OK
    record = driver.records[-1]
    ring = driver.place(64 * 64, PLAIN)
    driver.connect(ring, log_sq_size=6, log_sq_stride=2, use_srq=1, srqn=SRQN)
    source, target = driver.host.allocate(PAGE), driver.host.allocate(PAGE)
    order = list(range(1, 1 << log_size))
    Random(layout.seed).shuffle(order)
    order.insert(0, 0)
    for slot in range(64):
        driver.host.poke(ring.address(64 * slot), b"\x80")
    for index in range(count):
        slot, following = (order[at % len(order)] for at in (index, index + 1))
        at = slot << log_stride + 4
        driver.host.poke(place.address(at), b"\0\0" + following.to_bytes(2, "big") + bytes(12))
        _post_receive(driver, place, at + 16, log_stride - 1, target + index)
        driver.tell(record, index + 1)
        _send(driver, ring, 0, (6, 2), index, source)
        assert driver.host.peek(target + index, MESSAGE) == _message(index)


@settings(max_examples=80)
@given(
    opcode=st.integers(0, 0xFFF).filter(lambda number: number not in tuple(Opcode)),
    modifier=st.integers(0, 0xFFFFFFFF),
    op_modifier=st.integers(0, 15),
    parameter=st.integers(0, (1 << 64) - 1),
)
def test_undefined_commands_write_nothing(
    opcode: int, modifier: int, op_modifier: int, parameter: int
) -> None:
    driver = TableDriver()
    before = driver.image()
    status, _ = driver.try_command(opcode, parameter, modifier, op_modifier, out=True)
    assert status is Status.BAD_OP
    assert driver.image() == before


@settings(max_examples=30)
@given(first=st.integers(0, 0xFFFFFFFF), second=st.integers(0, 0xFFFFFFFF))
def test_what_is_written_beside_the_registers_has_no_effect(first: int, second: int) -> None:
    """BAR0 but for the command register and reset, BAR2 but for doorbells."""
    driver = TableDriver()
    before = driver.image()
    own = range(bar0.HCR_BASE, bar0.HCR_BASE + bar0.HCR.size)
    for offset in (first % bar0.BAR0_SIZE & -4, second % bar0.BAR0_SIZE & -4):
        if offset not in own and offset != bar0.RESET_OFFSET:
            driver.write32(offset, first)
    for offset in (first % (8 << 20) & -4, second % (8 << 20) & -4):
        driver.write32(offset, second, 2)
    assert driver.image() == before
    assert driver.query(Opcode.QUERY_HCA)[0] == 2  # it still runs


def _translations(driver: TableDriver, *places: Place) -> list[Place]:
    """The stretches of the MTT that the device wrote for software, as places."""
    table = driver.table
    return [
        Place([table + place.mtt & -PAGE], Layout(12, place.mtt % PAGE, 0, True), size, 0)
        for place in places
        if (size := 8 * len(place.pages))
    ]


def _word(record: int) -> Place:
    """A doorbell record as a place: software writes there."""
    return Place([record & -PAGE], Layout(12, record % PAGE, 0, True), 8, 0)


def _message(index: int) -> bytes:
    return bytes((index * 7 + at) & 0xFF or 1 for at in range(MESSAGE))


def _post_receive(
    driver: TableDriver, place: Place, at: int, log_stride: int, address: int
) -> None:
    segments = [DATA.pack(byte_count=MESSAGE, lkey=KEY, va=address)]
    if log_stride:
        segments.append(DATA.pack(lkey=INVALID_LKEY))
    for number, segment in enumerate(segments):
        driver.host.poke(place.address(at + 16 * number), segment)


def _send(
    driver: TableDriver, place: Place, base: int, ring: tuple[int, int], index: int, source: int
) -> None:
    """One SEND: its first word last, since the adapter may look before the doorbell."""
    log_size, log_stride = ring
    at = base + (index % (1 << log_size) << log_stride + 4)
    driver.host.poke(source, _message(index))
    owner = index >> log_size & 1
    following = base + ((index + 1) % (1 << log_size) << log_stride + 4)
    if log_size:  # what follows is not posted yet
        lap = (index + 1) >> log_size & 1
        driver.host.poke(place.address(following), bytes(((lap ^ 1) << 7,)))
    data = DATA.pack(byte_count=MESSAGE, lkey=KEY, va=source)
    driver.host.poke(place.address(at + 16), data)
    control = CTRL.pack(opcode=SendOpcode.SEND, owner=owner, ds=2)
    driver.host.poke(place.address(at), control)
    driver.ring_doorbell()
