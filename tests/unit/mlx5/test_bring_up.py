"""A driver of a ConnectX-5 that starts meets these: registers, capabilities, pages, events."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx5 import caps, init_segment
from bluebridge.device.layout.mlx5.caps import CapGroup
from bluebridge.device.layout.mlx5.commands import Opcode, Status
from bluebridge.device.layout.mlx5.device_commands import (
    ACCESS_REG,
    MANAGE_PAGES_OUT,
    PAGES_GIVEN,
    QUERY_ADAPTER,
    QUERY_ISSI,
    QUERY_PAGES,
    REGISTER_READ,
    TAKE_PAGES,
)
from bluebridge.device.layout.mlx5.event_queues import EQC, EQE_BYTES, EventType
from bluebridge.device.layout.mlx5.port_registers import PFCC
from bluebridge.device.layout.mlx5.registers import (
    MCAM,
    MCQI,
    MCQI_VERSION,
    MCQS,
    NODE_DESC,
    RegisterId,
)
from tests.models.mlx5_driver import Answer, Mlx5Driver
from tests.models.mlx5_paged import PacketNode
from tests.models.mlx5_pair import RoceNode

CAP_OUTPUT = 0x10 + caps.GROUP_BYTES


@pytest.fixture
def driver() -> Mlx5Driver:
    """A started adapter."""
    return Mlx5Driver().start()


@pytest.fixture
def fresh() -> Mlx5Driver:
    """An adapter with a command queue, enabled and not initialised."""
    found = Mlx5Driver()
    found.set_queue()
    found.command(Opcode.ENABLE_HCA)
    return found


def group(driver: Mlx5Driver, which: int, *, current: bool = True) -> bytes:
    """A group of capabilities."""
    op_mod = 2 * which + current
    answer = driver.command(Opcode.QUERY_HCA_CAP, op_mod=op_mod, output=CAP_OUTPUT)
    assert answer.status is Status.OK
    return answer.output[0x10:]


def register(driver: Mlx5Driver, number: int, data: bytes = b"", *, write: bool = False) -> Answer:
    """Read or write a register of 256 bytes."""
    head = ACCESS_REG.pack(op_mod=0 if write else REGISTER_READ, register=number)
    more = bytes(head)[8:] + data.ljust(256, b"\0")
    return driver.command(
        Opcode.ACCESS_REG, more, op_mod=0 if write else REGISTER_READ, output=16 + 256
    )


def test_the_segment_tells_firmware_and_revision() -> None:
    driver = Mlx5Driver()
    assert driver.read32(init_segment.FIRMWARE) == 35 << 16 | 16
    assert driver.read32(init_segment.INTERFACE) == 5 << 16 | 4030
    assert driver.read32(init_segment.INITIALIZING) == 0
    assert driver.read32(init_segment.QUEUE_LOW) & 0xFF == 0x56
    assert driver.read32(init_segment.HEALTH + 0x30) != 0xFFFFFFFF


def test_the_interface_is_down_until_there_is_a_queue() -> None:
    driver = Mlx5Driver()
    assert driver.read32(init_segment.QUEUE_LOW) >> 8 & 7 == init_segment.NIC_DISABLED
    driver.set_queue()
    assert driver.read32(init_segment.QUEUE_LOW) >> 8 & 7 == 0
    assert driver.read32(init_segment.QUEUE_LOW) & 0xFFFFF000 == driver.queue


def test_clock_and_health_counter_move(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Mlx5Driver()
    module = "bluebridge.device.mlx5.registers.init_segment"
    times = iter((10**9, 3 * 10**9))
    monkeypatch.setattr(f"{module}.monotonic_ns", lambda: next(times))
    first, second = (driver.read32(init_segment.HEALTH_COUNTER) for _ in range(2))
    assert first != second
    low = driver.read32(init_segment.TIMER_LOW)
    assert driver.read32(init_segment.TIMER_LOW) != low


def test_the_timer_is_read_right_while_its_lower_half_wraps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """High, low, high, and low once more if high has changed, as Linux `lib/clock.c` reads it."""
    driver = Mlx5Driver()
    times = iter(((1 << 32) - 2, (1 << 32) - 1, (1 << 32) + 5, (1 << 32) + 6))
    monkeypatch.setattr("bluebridge.device.mlx5.rings.clock.monotonic_ns", lambda: next(times))
    high, low, again = (
        driver.read32(at)
        for at in (init_segment.TIMER_HIGH, init_segment.TIMER_LOW, init_segment.TIMER_HIGH)
    )
    assert (high, low, again) == (0, 0xFFFFFFFF, 1)
    assert driver.read32(init_segment.TIMER_LOW) == 6


@pytest.mark.parametrize("wish", [init_segment.NIC_SOFTWARE_RESET, init_segment.NIC_DISABLED])
def test_software_resets_the_adapter(driver: Mlx5Driver, wish: int) -> None:
    driver.write32(init_segment.QUEUE_LOW, driver.queue | wish << 8)
    assert driver.read32(init_segment.QUEUE_LOW) >> 8 & 7 == init_segment.NIC_DISABLED
    driver.ring(1)
    driver.set_queue()
    assert driver.command(Opcode.ALLOC_UAR).status is Status.BAD_SYS_STATE


def test_an_internal_error_shows_until_software_starts_anew(driver: Mlx5Driver) -> None:
    driver.hca.fail("for a test")
    assert driver.hca.failed
    assert driver.read32(init_segment.QUEUE_LOW) >> 8 & 7 == init_segment.NIC_DISABLED
    assert driver.read32(init_segment.HEALTH + 0x38) >> 31 == 1
    assert driver.read32(init_segment.HEALTH + 0x3C) >> 16 & 0xFF
    driver.ring(1)
    driver.set_queue()
    assert not driver.hca.failed
    assert driver.read32(init_segment.HEALTH + 0x38) == 0
    assert driver.command(Opcode.ENABLE_HCA).status is Status.OK


def test_software_chooses_a_revision_of_commands(fresh: Mlx5Driver) -> None:
    offered = fresh.command(Opcode.QUERY_ISSI, output=0x70).output
    assert QUERY_ISSI.get(offered, "supported") == 0b11
    assert fresh.command(Opcode.SET_ISSI, b"\0\0\0\2" + bytes(4)).status is Status.BAD_PARAM
    assert fresh.command(Opcode.SET_ISSI, b"\0\0\0\1" + bytes(4)).status is Status.OK
    chosen = fresh.command(Opcode.QUERY_ISSI, output=0x70).output
    assert QUERY_ISSI.get(chosen, "current") == 1


def test_the_adapter_wants_no_pages(fresh: Mlx5Driver) -> None:
    for op_mod in (1, 2, 3):
        wanted = fresh.command(Opcode.QUERY_PAGES, op_mod=op_mod)
        assert QUERY_PAGES.get(wanted.output, "count") == 0


def test_pages_that_are_given_come_back(fresh: Mlx5Driver) -> None:
    pages = {0x10000, 0x20000, 0x7_0000_0000}
    listed = b"".join(page.to_bytes(8, "big") for page in pages)
    more = bytes(4) + len(pages).to_bytes(4, "big") + listed
    assert fresh.command(Opcode.MANAGE_PAGES, more, op_mod=PAGES_GIVEN).status is Status.OK
    more = bytes(4) + (9).to_bytes(4, "big")
    taken = fresh.command(Opcode.MANAGE_PAGES, more, op_mod=TAKE_PAGES, output=16 + 9 * 8).output
    count = MANAGE_PAGES_OUT.get(taken, "count")
    assert {
        int.from_bytes(taken[at : at + 8], "big") for at in range(16, 16 + 8 * count, 8)
    } == pages


@pytest.mark.parametrize(
    ("count", "listed", "status"),
    [
        (3, bytes(16), Status.BAD_INP_LEN),
        (1, (0x1001).to_bytes(8, "big"), Status.BAD_PARAM),
        (0xFFFFFFFF, bytes(8), Status.LIM_ERR),
    ],
)
def test_lists_of_pages_that_lie_are_refused(
    fresh: Mlx5Driver, count: int, listed: bytes, status: Status
) -> None:
    more = bytes(4) + count.to_bytes(4, "big") + listed
    assert fresh.command(Opcode.MANAGE_PAGES, more, op_mod=PAGES_GIVEN).status is status


def test_what_a_driver_needs_is_offered(driver: Mlx5Driver) -> None:
    general = group(driver, CapGroup.GENERAL)
    for name in ("xrc", "rc", "ud", "uc", "eth_net_offloads", "nic_flow_table", "vport_counters"):
        assert caps.GENERAL.get(general, name) == 1, name
    assert caps.GENERAL.get(general, "log_max_cq_size") >= 16  # ib/cq.c: mlx5_ib_create_cq
    assert caps.GENERAL.get(general, "num_ports") == 1
    table = group(driver, CapGroup.FLOW_TABLE)
    level = caps.FLOW_PROPERTIES.get(table, "max_ft_level", caps.NIC_RECEIVE)
    assert 58 <= level < 119  # core/fs_core.c


def test_groups_that_are_switched_off_are_refused(driver: Mlx5Driver) -> None:
    for which in (CapGroup.ESWITCH, CapGroup.ESWITCH_FLOW_TABLE, 0x7FFF):
        op_mod = 2 * which
        answer = driver.command(Opcode.QUERY_HCA_CAP, op_mod=op_mod & 0xFFFF, output=CAP_OUTPUT)
        assert answer.status is Status.BAD_PARAM


def test_the_order_of_atomic_results_is_all_that_software_sets_there(fresh: Mlx5Driver) -> None:
    wanted = caps.ATOMIC.pack(request_endianness_mode=1)
    fresh.command(Opcode.SET_HCA_CAP, bytes(8) + bytes(wanted), op_mod=2 * CapGroup.ATOMIC)
    now = group(fresh, CapGroup.ATOMIC)
    assert caps.ATOMIC.get(now, "request_endianness_mode") == 1
    assert caps.ATOMIC.get(now, "operations") == 0xF
    fresh.command(Opcode.DISABLE_HCA)
    fresh.command(Opcode.ENABLE_HCA)
    assert caps.ATOMIC.get(group(fresh, CapGroup.ATOMIC), "request_endianness_mode") == 0


def test_masked_atomics_are_offered_where_the_wire_carries_them() -> None:
    """Packets have no standard opcode for them."""
    found = [
        [
            node.adapter.capabilities.get(CapGroup.ATOMIC, name)
            for name in ("operations", "sizes_qp")
        ]
        for node in (RoceNode(1), PacketNode(1))
    ]
    assert found == [[0xF, 4 | 8], [3, 8]]


def test_capabilities_are_chosen_before_the_start(driver: Mlx5Driver) -> None:
    more = bytes(8) + bytes(caps.GROUP_BYTES)
    assert driver.command(Opcode.SET_HCA_CAP, more).status is Status.BAD_SYS_STATE


def test_the_board_says_who_made_it(driver: Mlx5Driver) -> None:
    block = driver.command(Opcode.QUERY_ADAPTER, output=0x110).output[0x10:]
    assert QUERY_ADAPTER.get(block, "ieee_vendor_id") == 0x0002C9
    assert QUERY_ADAPTER.get_raw(block, "board_id").rstrip(b"\0") == b"BB_CX5_A1"


def test_registers_tell_versions_and_which_of_them_there_are(driver: Mlx5Driver) -> None:
    offered = int.from_bytes(
        MCAM.get_raw(register(driver, RegisterId.MCAM).output[16:], "registers"), "big"
    )
    assert offered == 1 << 0x60 | 1 << 0x61
    component = register(driver, RegisterId.MCQS).output[16:]
    assert MCQS.get(component, "identifier") == 1 and MCQS.get(component, "last") == 1
    asked = bytes(MCQI.pack(info_type=1, data_size=MCQI_VERSION.size))
    data = register(driver, RegisterId.MCQI, asked).output[16:]
    assert MCQI_VERSION.get(data, "version", MCQI.size) == 16 << 24 | 35 << 16 | 4030
    assert register(driver, RegisterId.MCQS, b"\0\0\0\1").status is Status.BAD_INDEX
    text = NODE_DESC.get_raw(register(driver, RegisterId.NODE_DESC).output[16:], "text")
    assert b"ConnectX-5" in text


def test_a_port_pauses_and_obeys_until_it_is_told_not_to(driver: Mlx5Driver) -> None:
    def pauses() -> tuple[int, int]:
        data = register(driver, RegisterId.PFCC).output[16:]
        return PFCC.get(data, "pause_tx"), PFCC.get(data, "pause_rx")

    assert pauses() == (1, 1)
    register(driver, RegisterId.PFCC, bytes(PFCC.pack(pause_rx=1)), write=True)
    assert pauses() == (0, 1)
    driver.command(Opcode.TEARDOWN_HCA)
    assert pauses() == (1, 1)


@pytest.mark.parametrize("write", [False, True])
def test_unknown_registers_read_as_zeros(driver: Mlx5Driver, write: bool) -> None:
    answer = register(driver, 0x9999, b"\0\1\0\0", write=write)
    assert answer.status is Status.OK
    assert answer.output[16:] == bytes(256)


def test_a_big_endian_host_is_refused(driver: Mlx5Driver) -> None:
    number = RegisterId.HOST_ENDIANNESS
    assert register(driver, number, b"\0", write=True).status is Status.OK
    assert register(driver, number, b"\x80", write=True).status is Status.BAD_PARAM


def test_pages_of_doorbells_are_free_again(driver: Mlx5Driver) -> None:
    first = driver.command(Opcode.ALLOC_UAR).number
    assert first * 4096 < init_segment.BAR0_SIZE
    assert driver.numbered(Opcode.DEALLOC_UAR, first).status is Status.OK
    assert driver.numbered(Opcode.DEALLOC_UAR, first).status is Status.BAD_RES
    assert driver.command(Opcode.ALLOC_UAR).number == first


def test_there_is_an_end_of_pages_of_doorbells(driver: Mlx5Driver) -> None:
    statuses = [driver.command(Opcode.ALLOC_UAR).status for _ in range(init_segment.UARS)]
    assert statuses[-1] is Status.LIM_ERR and set(statuses[:-1]) == {Status.OK}


def test_an_event_interrupts_once_until_the_queue_is_armed(driver: Mlx5Driver) -> None:
    ring = driver.create_eq(4, 3, 1 << EventType.PORT_CHANGE)
    for _ in range(2):
        driver.adapter.eqs.post_async(EventType.PORT_CHANGE, b"", 4)
    assert driver.host.take_interrupts() == [3]
    assert len(driver.poll_eq(ring)) == 2
    driver.eq_doorbell(ring, arm=False)
    driver.adapter.eqs.post_async(EventType.PORT_CHANGE, b"", 4)
    assert driver.host.take_interrupts() == []
    driver.eq_doorbell(ring)
    assert driver.host.take_interrupts() == [3]


def test_events_wrap_and_none_is_lost(driver: Mlx5Driver) -> None:
    ring = driver.create_eq(2, 0, 1 << EventType.PORT_CHANGE)
    for number in range(11):
        driver.adapter.eqs.post_async(EventType.PORT_CHANGE, bytes((number,)))
    found: list[int] = []
    while entries := driver.poll_eq(ring):
        found += [entry[0x20] for entry in entries]
        driver.eq_doorbell(ring)
    assert found == list(range(11))


def test_a_queue_is_told_of_its_own_events_only(driver: Mlx5Driver) -> None:
    port = driver.create_eq(4, 1, 1 << EventType.PORT_CHANGE)
    other = driver.create_eq(4, 2, 1 << EventType.CQ_ERROR)
    driver.adapter.eqs.post_async(EventType.PORT_CHANGE, b"", 4)
    assert (len(driver.poll_eq(port)), len(driver.poll_eq(other))) == (1, 0)


def test_a_destroyed_queue_writes_nothing(driver: Mlx5Driver) -> None:
    ring = driver.create_eq(4, 0, 1 << EventType.PORT_CHANGE)
    assert driver.numbered(Opcode.DESTROY_EQ, ring.eqn).status is Status.OK
    driver.adapter.eqs.post_async(EventType.PORT_CHANGE, b"", 4)
    assert driver.poll_eq(ring) == []


def test_a_queue_tells_its_indices(driver: Mlx5Driver) -> None:
    ring = driver.create_eq(4, 0, 1 << EventType.PORT_CHANGE)
    driver.adapter.eqs.post_async(EventType.PORT_CHANGE, b"", 4)
    more = ring.eqn.to_bytes(4, "big") + bytes(4)
    context = driver.command(Opcode.QUERY_EQ, more, output=0x10 + EQC.size).output[0x10:]
    assert (EQC.get(context, "producer_index"), EQC.get(context, "consumer_index")) == (1, 0)


@pytest.mark.parametrize(
    ("log_size", "vector", "status"),
    [(23, 0, Status.BAD_PARAM), (4, 32, Status.BAD_PARAM), (31, 0, Status.BAD_PARAM)],
)
def test_event_queues_that_cannot_be_are_refused(
    driver: Mlx5Driver, log_size: int, vector: int, status: Status
) -> None:
    context = EQC.pack(log_size=log_size, vector=vector)
    more = bytes(8) + bytes(context) + bytes(8 + 32 + 0x98) + bytes(8)
    assert driver.command(Opcode.CREATE_EQ, more).status is status


def test_a_ring_outside_of_memory_loses_its_events_alone(driver: Mlx5Driver) -> None:
    answer = driver.try_create_eq(1 << 50, 4, 0, 1 << EventType.PORT_CHANGE)
    ring = driver.create_eq(4, 0, 1 << EventType.PORT_CHANGE)
    driver.adapter.eqs.post_async(EventType.PORT_CHANGE, b"", 4)
    assert answer.status is Status.OK
    assert len(driver.poll_eq(ring)) == 1


def test_the_end_of_a_driver_leaves_nothing(driver: Mlx5Driver) -> None:
    driver.create_eq(4, 0, 1 << EventType.PORT_CHANGE)
    assert driver.command(Opcode.TEARDOWN_HCA).status is Status.OK
    assert driver.command(Opcode.DISABLE_HCA).status is Status.OK
    assert driver.adapter.eqs.numbers() == []
    assert driver.adapter.doorbells.numbers() == []
    assert driver.adapter.pages.count == 0
    again = driver.start().create_eq(4, 0, 1 << EventType.PORT_CHANGE)
    driver.adapter.eqs.post_async(EventType.PORT_CHANGE, b"", 4)
    assert len(driver.poll_eq(again)) == 1
    assert EQE_BYTES == 64
