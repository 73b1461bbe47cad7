"""The command queue of a ConnectX-5: entries, mailboxes, order, what is not as it must be."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import xor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx5 import caps
from bluebridge.device.layout.mlx5.caps import CapGroup
from bluebridge.device.layout.mlx5.commands import (
    BLOCK_BYTES,
    ENTRY,
    INPUT,
    MAILBOX,
    Delivery,
    Opcode,
    Status,
    name_of,
)
from bluebridge.device.layout.mlx5.contexts import CQC, MKC, RMPC, WQ, WQ_OFFSET, AccessMode
from bluebridge.device.layout.mlx5.event_queues import COMMAND_EQE, EventType
from bluebridge.device.layout.mlx5.objects import CONTEXT, CREATE_MKEY, LIST
from bluebridge.device.layout.mlx5.objects import ENTRY as KEY_AT
from bluebridge.device.layout.mlx5.queue_pairs import QP_IN, QPC, Receives
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands import queue
from bluebridge.device.mlx5.commands.command import Rule
from bluebridge.device.mlx5.commands.table import RULES
from bluebridge.device.mlx5.settings.capabilities import MOST
from tests.models.mlx5_driver import Mlx5Driver

CAP_OUTPUT = 0x10 + caps.GROUP_BYTES


@pytest.fixture
def driver() -> Mlx5Driver:
    """A started adapter."""
    return Mlx5Driver().start()


def inputs(opcode: int, length: int = 16, op_mod: int = 0) -> bytes:
    """An input of this length."""
    return bytes(INPUT.pack(opcode=opcode, op_mod=op_mod)).ljust(length, b"\0")


def facts(driver: Mlx5Driver) -> list[tuple[str, str]]:
    """Names and statuses of the commands in the log."""
    return [(fact["name"], fact["status"]) for fact in driver.host.facts(Fact.FIRMWARE_COMMAND)]


def test_an_output_goes_through_all_its_mailboxes(driver: Mlx5Driver) -> None:
    op_mod = 2 * CapGroup.GENERAL
    answer = driver.command(Opcode.QUERY_HCA_CAP, op_mod=op_mod, output=CAP_OUTPUT)
    assert answer.output[0x10:] == MOST[CapGroup.GENERAL]


def test_an_output_is_no_longer_than_software_wants(driver: Mlx5Driver) -> None:
    _, taken = driver.write_entry(0, inputs(Opcode.QUERY_HCA_CAP), 0x10 + 0x100)
    driver.ring(1)
    whole = MOST[CapGroup.GENERAL]
    assert driver.host.peek(taken[0], 0x100) == whole[:0x100]
    assert not any(driver.host.peek(taken[0] + 0x100, 0x100))


def test_an_input_comes_through_all_its_mailboxes(driver: Mlx5Driver) -> None:
    answer = Mlx5Driver()
    answer.set_queue()
    answer.command(Opcode.ENABLE_HCA)
    wanted = bytearray(MOST[CapGroup.GENERAL])
    caps.GENERAL.set(wanted, "log_max_qp", 11)
    wanted[-1] = 0x5A
    done = answer.command(Opcode.SET_HCA_CAP, bytes(8) + bytes(wanted))
    now = answer.command(Opcode.QUERY_HCA_CAP, op_mod=1, output=CAP_OUTPUT)
    assert done.status is Status.OK
    assert now.output[0x10:] == wanted


def test_a_done_entry_is_signed(driver: Mlx5Driver) -> None:
    driver.command(Opcode.QUERY_ISSI, output=0x70)
    assert reduce(xor, driver.entry(0)) == 0xFF


def test_one_doorbell_has_many_entries_carried_out(driver: Mlx5Driver) -> None:
    for slot in (0, 7, 31):
        driver.write_entry(slot, inputs(Opcode.ALLOC_UAR), 16)
    driver.ring(1 << 0 | 1 << 7 | 1 << 31)
    driver.host.run()
    numbers = {driver.answer(slot, [], 16).number for slot in (0, 7, 31)}
    assert len(numbers) == 3


def test_an_entry_of_software_is_left_alone(driver: Mlx5Driver) -> None:
    driver.write_entry(0, inputs(Opcode.ALLOC_UAR), 16)
    entry = bytearray(driver.entry(0))
    ENTRY.set(entry, "owner", 0)
    driver.host.poke(driver.entry_address(0), entry)
    driver.ring(1)
    assert driver.entry(0) == entry
    assert driver.host.facts(Fact.COMMAND_LOST)


def test_unknown_commands_are_refused_and_stand_in_the_log_by_number(driver: Mlx5Driver) -> None:
    answer = driver.command(0xABC)
    assert (answer.status, answer.delivery) == (Status.BAD_OP, Delivery.OK)
    assert facts(driver)[-1] == ("0xabc", "BAD_OP")


def test_each_kind_of_refusal_has_a_syndrome_of_its_own(driver: Mlx5Driver) -> None:
    first = driver.numbered(Opcode.DESTROY_EQ, 9)
    again = driver.numbered(Opcode.DESTROY_EQ, 11)
    other = driver.numbered(Opcode.DEALLOC_UAR, 9)
    assert first.syndrome == again.syndrome != 0
    assert other.syndrome not in (0, first.syndrome)


@pytest.mark.parametrize(
    ("field", "value", "delivery"),
    [
        ("type", 6, Delivery.DESCRIPTOR),
        ("input_length", 15, Delivery.IN_LENGTH),
        ("input_length", 0xFFFFFFFF, Delivery.IN_LENGTH),
        ("output_length", 7, Delivery.OUT_LENGTH),
        ("output_length", 0xFFFFFFFF, Delivery.OUT_LENGTH),
        ("input_mailbox", 0, Delivery.IN_POINTER),
        ("input_mailbox", 1 << 63, Delivery.IN_POINTER),
        ("output_mailbox", 0xFFFFFFFFFFFFF000, Delivery.OUT_POINTER),
        ("token", 99, Delivery.TOKEN),
    ],
)
def test_entries_that_lie_are_not_carried_out(
    driver: Mlx5Driver, field: str, value: int, delivery: Delivery
) -> None:
    driver.write_entry(0, inputs(Opcode.QUERY_HCA_CAP, 600), CAP_OUTPUT)
    entry = bytearray(driver.entry(0))
    ENTRY.set(entry, field, value)
    driver.host.poke(driver.entry_address(0), entry)
    driver.ring(1)
    driver.host.run()
    assert driver.answer(0, [], 16).delivery is delivery
    assert driver.command(Opcode.QUERY_ISSI, output=0x70).status is Status.OK


def test_a_chain_that_loops_ends_at_the_first_wrong_number(driver: Mlx5Driver) -> None:
    given, _ = driver.write_entry(0, inputs(Opcode.SET_HCA_CAP, 1 << 20), 16)
    block = bytearray(driver.host.peek(given[0], MAILBOX.size))
    MAILBOX.set(block, "next", given[0])
    driver.host.poke(given[0], block)
    driver.ring(1)
    assert driver.answer(0, [], 16).delivery is Delivery.BLOCK_NUMBER


def test_an_output_chain_that_loops_ends_too(driver: Mlx5Driver) -> None:
    _, taken = driver.write_entry(0, inputs(Opcode.QUERY_HCA_CAP), CAP_OUTPUT)
    block = bytearray(driver.host.peek(taken[0], MAILBOX.size))
    MAILBOX.set(block, "next", taken[0])
    driver.host.poke(taken[0], block)
    driver.ring(1)
    assert driver.answer(0, [], 16).delivery is Delivery.BLOCK_NUMBER


def test_a_queue_outside_of_memory_hangs_nobody(driver: Mlx5Driver) -> None:
    driver.queue = 1 << 50
    driver.set_queue()
    driver.ring(0xFFFFFFFF)
    driver.host.run()
    assert len(driver.host.facts(Fact.COMMAND_LOST)) == 32


def test_no_command_but_one_works_before_that(driver: Mlx5Driver) -> None:
    fresh = Mlx5Driver()
    fresh.set_queue()
    assert fresh.command(Opcode.QUERY_ISSI, output=0x70).status is Status.BAD_SYS_STATE
    assert fresh.command(Opcode.ENABLE_HCA).status is Status.OK
    assert fresh.command(Opcode.QUERY_ISSI, output=0x70).status is Status.OK
    assert fresh.command(Opcode.ALLOC_UAR).status is Status.BAD_SYS_STATE


def test_an_input_that_is_too_short_is_refused(driver: Mlx5Driver) -> None:
    assert driver.run(inputs(Opcode.CREATE_EQ, 64)).status is Status.BAD_INP_LEN


def test_a_command_is_told_by_an_event_and_by_its_entry(driver: Mlx5Driver) -> None:
    ring = driver.create_eq(8, 0, 1 << EventType.COMMAND)
    driver.host.take_interrupts()
    driver.run(inputs(Opcode.ALLOC_UAR), slot=5)
    (entry,) = driver.poll_eq(ring)
    assert COMMAND_EQE.get(entry, "slots") == 1 << 5
    assert driver.host.take_interrupts() == [0]


def test_the_command_that_makes_the_event_queue_is_not_told_by_it(driver: Mlx5Driver) -> None:
    ring = driver.create_eq(8, 0, 1 << EventType.COMMAND)
    assert driver.poll_eq(ring) == []


def test_commands_that_take_long_have_others_in_between(
    driver: Mlx5Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[str] = []

    def slow(adapter: Adapter, data: bytes) -> Iterator[bytes]:
        for step in range(3):
            turns.append(f"step {step}")
            yield bytes(8) + step.to_bytes(4, "big")

    monkeypatch.setattr(queue, "TURN_NS", -1)
    monkeypatch.setitem(RULES, 0xFF0, Rule(slow))
    driver.write_entry(0, inputs(0xFF0), 16)
    driver.ring(1)
    turns.append("other work")
    driver.host.run()
    assert turns[-1] != "other work" and "other work" in turns
    assert driver.answer(0, [], 16).number == 2


def test_a_long_input_leaves_others_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four MiB, the most there is, are read in many turns of the loop."""
    driver = Mlx5Driver(memory=16 << 20).start()
    monkeypatch.setattr(queue, "TURN_NS", -1)
    _, taken = driver.write_entry(0, inputs(0xABC, queue.MOST_BYTES), 16)
    driver.ring(1)
    turns = 0
    while ENTRY.get(driver.entry(0), "owner"):
        driver.host.turn()
        turns += 1
    assert turns >= queue.MOST_BYTES // BLOCK_BYTES // queue.PORTION
    assert driver.answer(0, taken, 16).status is Status.BAD_OP


def test_a_reset_forgets_commands_under_way(
    driver: Mlx5Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(adapter: Adapter, data: bytes) -> Iterator[bytes]:
        yield b""
        yield b""

    monkeypatch.setattr(queue, "TURN_NS", -1)
    monkeypatch.setitem(RULES, 0xFF0, Rule(slow))
    driver.write_entry(0, inputs(0xFF0), 16)
    driver.ring(1)
    driver.hca.reset()
    driver.host.run()
    assert ENTRY.get(driver.entry(0), "owner") == 1


def test_a_failure_of_the_device_ends_that_command_only(
    driver: Mlx5Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(adapter: Adapter, data: bytes) -> bytes:
        raise ZeroDivisionError("planted")

    monkeypatch.setitem(RULES, 0xFF0, Rule(broken))
    assert driver.command(0xFF0).status is Status.INTERNAL_ERR
    assert driver.command(Opcode.QUERY_ISSI, output=0x70).status is Status.OK


def test_the_log_names_the_object_of_a_command(driver: Mlx5Driver) -> None:
    ring = driver.create_eq(8, 0, 0)
    driver.numbered(Opcode.DESTROY_EQ, ring.eqn)
    made, gone = driver.host.facts(Fact.FIRMWARE_COMMAND)[-2:]
    assert (made["name"], made["word"], made["number"]) == ("CREATE_EQ", "eqn", ring.eqn)
    assert (gone["name"], gone["word"], gone["number"]) == ("DESTROY_EQ", "eqn", ring.eqn)


def test_names_are_those_of_the_driver() -> None:
    assert name_of(Opcode.TOERR_QP) == "2ERR_QP"
    assert name_of(0x107) == "QUERY_PAGES"


@given(st.binary(min_size=64, max_size=64), st.binary(max_size=600))
def test_no_entry_escapes_as_an_exception(entry: bytes, mailbox: bytes) -> None:
    driver = Mlx5Driver(memory=1 << 20).start()
    place = driver.host.allocate(4096)
    driver.host.poke(place, mailbox)
    data = bytearray(entry)
    ENTRY.set(data, "type", 7)
    ENTRY.set(data, "owner", 1)
    ENTRY.set(data, "input_mailbox", place)
    ENTRY.set(data, "output_mailbox", place)
    driver.host.poke(driver.entry_address(0), data)
    driver.ring(1)
    driver.host.run()
    if driver.read32(0x14) >> 8 & 7 == 0:
        assert not ENTRY.get(driver.entry(0), "owner")
    told = driver.host.facts(Fact.FIRMWARE_COMMAND)[-1]
    assert told["status"] != Status.INTERNAL_ERR.name


def key_input(pages: int = 0) -> bytes:
    """The input that makes a key without memory, with room for pages behind it."""
    data = CREATE_MKEY.pack()
    data[KEY_AT : KEY_AT + MKC.size] = MKC.pack(
        free=1, umr=1, access_mode=AccessMode.MTT, key=0x5A, translations=4
    )
    INPUT.set(data, "opcode", Opcode.CREATE_MKEY)
    return bytes(data) + bytes(8 * pages)


def test_commands_on_keys_are_a_record_each(driver: Mlx5Driver) -> None:
    """Drivers make thousands; the record has what the entry and its mailbox had."""
    before = len(driver.host.events)
    number = driver.run(key_input()).number
    assert driver.numbered(Opcode.DESTROY_MKEY, number).status is Status.OK
    assert driver.numbered(Opcode.DESTROY_MKEY, number).status is Status.BAD_RES
    assert len(driver.host.events) == before
    made, gone, again = (each for each in driver.host.told if each.fact is Fact.KEY_COMMAND)
    assert f"CREATE_MKEY slot=0 mkey={number:#x} OK" in made.text
    assert made.text.endswith("free=0x1 umr=0x1 access_mode=0x1 key=0x5a translations=0x4")
    assert f"DESTROY_MKEY slot=0 mkey={number:#x} OK" in gone.text
    assert again.values["status"] == "BAD_RES"
    assert again.values["syndrome"]


def test_a_key_with_a_long_list_has_all_its_records(driver: Mlx5Driver) -> None:
    assert driver.run(key_input(pages=64)).status is Status.OK
    assert {event.what for event in driver.host.events} >= {What.COMMAND_ENTRY, What.MAILBOX_IN}
    assert driver.host.facts(Fact.FIRMWARE_COMMAND)[-1]["name"] == "CREATE_MKEY"


def test_a_short_command_on_keys_is_refused_like_others(driver: Mlx5Driver) -> None:
    """Its mailbox has a token, too, and its entry an output that is long enough."""
    _, taken = driver.write_entry(0, key_input(), 16)
    driver.host.poke(driver.entry_address(0) + ENTRY.field("token").offset, b"\xee")
    driver.ring(1)
    assert driver.answer(0, taken, 16).delivery is Delivery.TOKEN
    assert driver.host.facts(Fact.KEY_COMMAND)[-1]["status"] == "not TOKEN"


def make(driver: Mlx5Driver, opcode: Opcode, data: bytes = bytes(8)) -> int:
    """Make an object; its number."""
    answer = driver.command(opcode, data)
    assert answer.status is Status.OK
    return answer.number


def make_cq(driver: Mlx5Driver, eqn: int) -> int:
    """Make a completion queue."""
    context = CQC.pack(log_size=4, eqn=eqn, doorbell_record=driver.host.allocate(64))
    listed = driver.host.allocate(4096).to_bytes(8, "big")
    data = (bytes(KEY_AT) + bytes(context)).ljust(LIST, b"\0") + listed
    return make(driver, Opcode.CREATE_CQ, data[8:])


def test_what_others_use_is_not_destroyed(driver: Mlx5Driver) -> None:
    """A queue pair uses its domain, its completion queues and its pool of receives."""
    eq = driver.create_eq(4, 1, 0)
    pd = make(driver, Opcode.ALLOC_PD)
    send_cq, receive_cq = make_cq(driver, eq.eqn), make_cq(driver, eq.eqn)
    page = driver.host.allocate(4096).to_bytes(8, "big")
    work = WQ.pack(pd=pd, log_stride=6, log_size=4)
    pool = bytes(RMPC.pack(state=1))[:WQ_OFFSET] + bytes(work)
    srq = make(driver, Opcode.CREATE_RMP, (bytes(CONTEXT) + pool + page)[8:])
    context = QPC.pack(
        pd=pd, cqn_send=send_cq, cqn_recv=receive_cq, srqn=srq, rq_type=Receives.SHARED,
        log_sq_size=4,
    )  # fmt: skip
    pair = make(driver, Opcode.CREATE_QP, bytes(QP_IN.pack(context=bytes(context)))[8:] + page)
    ends = [
        (Opcode.DESTROY_CQ, send_cq), (Opcode.DESTROY_CQ, receive_cq), (Opcode.DESTROY_RMP, srq),
        (Opcode.DEALLOC_PD, pd),
    ]  # fmt: skip
    for opcode, number in ends:
        answer = driver.numbered(opcode, number)
        assert answer.status is Status.BAD_RES_STATE
        assert answer.syndrome
    assert driver.numbered(Opcode.DESTROY_QP, pair).status is Status.OK
    assert driver.numbered(Opcode.DESTROY_QP, pair).status is Status.BAD_RES_STATE
    for opcode, number in ends:
        assert driver.numbered(opcode, number).status is Status.OK
        assert driver.numbered(opcode, number).status is Status.BAD_RES


def test_a_domain_with_a_key_stays(driver: Mlx5Driver) -> None:
    pd = make(driver, Opcode.ALLOC_PD)
    data = bytearray(key_input())
    MKC.set(data, "pd", pd, KEY_AT)
    key = driver.run(bytes(data)).number
    assert driver.numbered(Opcode.DEALLOC_PD, pd).status is Status.BAD_RES_STATE
    assert driver.numbered(Opcode.DESTROY_MKEY, key).status is Status.OK
    assert driver.numbered(Opcode.DEALLOC_PD, pd).status is Status.OK


def test_nothing_is_in_use_after_a_teardown(driver: Mlx5Driver) -> None:
    """The numbers of objects begin anew, and nothing of the old ones is left."""
    eq = driver.create_eq(4, 1, 0)
    pd, cq = make(driver, Opcode.ALLOC_PD), make_cq(driver, eq.eqn)
    page = driver.host.allocate(4096).to_bytes(8, "big")
    context = QPC.pack(pd=pd, cqn_send=cq, cqn_recv=cq, rq_type=Receives.NONE, log_sq_size=4)
    make(driver, Opcode.CREATE_QP, bytes(QP_IN.pack(context=bytes(context)))[8:] + page)
    assert driver.command(Opcode.TEARDOWN_HCA).status is Status.OK
    assert driver.command(Opcode.INIT_HCA).status is Status.OK
    assert make(driver, Opcode.ALLOC_PD) == pd
    assert driver.numbered(Opcode.DEALLOC_PD, pd).status is Status.OK
