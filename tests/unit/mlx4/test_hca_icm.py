"""ICM: mapping, unmapping, translation entries."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.capabilities import QUERY_FW
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import MAP_ENTRY, WRITE_MTT
from bluebridge.device.mlx4.memory.icm import Icm, IcmError, PageRanges
from bluebridge.device.mlx4.rings.ring_buffer import FILL_BYTES, OwnedBuffer
from bluebridge.device.mlx4.settings.parameters import CommandError, Parameters
from bluebridge.device.pci.bus import DmaError
from tests.models.fake_host import FakeHost
from tests.models.hca_driver import TABLE_BYTES, Driver

BASE = 0x100000


def test_the_last_mapping_wins_and_unmapping_nothing_is_fine() -> None:
    icm = Icm(FakeHost(), Parameters())
    icm.map(0x4000, BASE, 1)
    icm.map(0x5000, BASE + 0x8000, 0)
    assert icm.runs(0x4800, 0x1000) == [(BASE + 0x800, 0x800), (BASE + 0x8000, 0x800)]
    icm.unmap(0x5000, 64)
    assert icm.mapped_pages == 1
    icm.unmap(0, 1 << 32)
    assert icm.mapped_pages == 0
    with pytest.raises(IcmError):
        icm.read(0x4000, 8, What.MTT)


def test_icm_over_a_hole_in_guest_memory_is_an_icm_error() -> None:
    icm = Icm(FakeHost(), Parameters())
    icm.map(0, 0xDEAD0000, 0)
    with pytest.raises(IcmError) as caught:
        icm.read(0, 8, What.MTT)
    assert caught.value.status == Status.ICM_ERROR
    with pytest.raises(IcmError):
        icm.write(0, bytes(8), What.MPT)


def test_translation_entries_lose_their_present_bit_or_are_refused() -> None:
    host = FakeHost()
    icm = Icm(host, Parameters(mtt_base=0x10000))
    icm.map(0x10000, BASE, 0)
    host.poke(BASE + 16, (0x7000 | 1).to_bytes(8, "big") + (0x123456000 | 1).to_bytes(8, "big"))
    assert list(icm.read_mtt(16, 2)) == [0x7000, 0x123456000]
    assert list(icm.read_mtt(0x13, 1)) == [0x7000]
    with pytest.raises(CommandError) as caught:
        icm.read_mtt(8, 2)
    assert caught.value.status == Status.BAD_PARAM


def test_map_icm_checks_all_entries_before_it_maps_one() -> None:
    driver = Driver()
    good = MAP_ENTRY.pack(virtual=0, page=BASE >> 12, log_pages=6)
    bad = MAP_ENTRY.pack(virtual=0x800, page=BASE >> 12)
    wide = MAP_ENTRY.pack(virtual=0, page=BASE >> 12, log_pages=40)
    for second in (bad, wide):
        status, _ = driver.try_command(Opcode.MAP_ICM, bytes(good + second), 2)
        assert status == Status.BAD_PARAM
    assert driver.adapter.icm.mapped_pages == 0
    for count in (0, 257, 1 << 31):
        assert driver.try_command(Opcode.MAP_ICM, bytes(good), count)[0] == Status.BAD_PARAM
    driver.command(Opcode.MAP_ICM, bytes(good), 1)
    assert driver.adapter.icm.mapped_pages == 64
    driver.command(Opcode.UNMAP_ICM, 0, 64)
    assert driver.adapter.icm.mapped_pages == 0


@pytest.mark.parametrize(
    ("lend", "take_back"),
    [(Opcode.MAP_FA, Opcode.UNMAP_FA), (Opcode.MAP_ICM_AUX, Opcode.UNMAP_ICM_AUX)],
)
def test_the_firmware_takes_the_pages_it_asked_for_and_no_more(
    lend: Opcode, take_back: Opcode
) -> None:
    driver = Driver()
    wanted = {
        Opcode.MAP_FA: QUERY_FW.get(driver.query(Opcode.QUERY_FW), "fw_pages"),
        Opcode.MAP_ICM_AUX: driver.command(Opcode.SET_ICM_SIZE, 5 << 30),
    }[lend]
    assert wanted > 0
    one = bytes(MAP_ENTRY.pack(page=BASE >> 12))
    for _ in range(2):
        driver.command(lend, one * wanted, wanted)
        assert driver.try_command(lend, one, 1)[0] == Status.EXCEED_LIM
        driver.command(take_back)


def test_icm_ends_where_the_capabilities_say() -> None:
    entry = bytes(MAP_ENTRY.pack(virtual=1 << 40, page=BASE >> 12))
    assert Driver().try_command(Opcode.MAP_ICM, entry, 1)[0] == Status.EXCEED_LIM


def test_mapping_for_ever_ends_at_the_size_that_was_announced() -> None:
    driver = Driver()
    driver.command(Opcode.SET_ICM_SIZE, 1 << 30)
    most = bytes(MAP_ENTRY.pack(page=BASE >> 12, virtual=1 << 30, log_pages=6))
    driver.command(Opcode.MAP_ICM, most, 1)  # the last chunk of a table, as mlx4_core has it
    commands = 0
    status = Status.OK
    while status == Status.OK:
        entry = MAP_ENTRY.pack(page=BASE >> 12, virtual=commands << 28, log_pages=16)
        status, _ = driver.try_command(Opcode.MAP_ICM, bytes(entry), 1)
        commands += 1
    assert (status, commands) == (Status.EXCEED_LIM, 5)
    assert driver.try_command(Opcode.SET_ICM_SIZE, (1 << 40) + 1)[0] == Status.EXCEED_LIM
    driver.hca.reset()
    driver.command(Opcode.MAP_ICM, bytes(MAP_ENTRY.pack(virtual=1 << 32)), 1)


def test_software_may_leave_the_table_of_translations_to_commands() -> None:
    """As iPXE does (hermon.c: hermon_alloc_mtt), an entry at a time."""
    driver = Driver().start()
    entries = [BASE | 1, BASE + 0x5000 | 1]
    mailbox = bytes(WRITE_MTT.pack(offset=0x800)) + b"".join(e.to_bytes(8, "big") for e in entries)
    driver.command(Opcode.WRITE_MTT, mailbox, 2)
    assert list(driver.adapter.icm.read_mtt(0x800, 2)) == [BASE, BASE + 0x5000]
    for offset, count in ((4, 1), (1 << 40, 1), (0, 0), (0, 511)):
        mailbox = bytes(WRITE_MTT.pack(offset=offset))
        assert driver.try_command(Opcode.WRITE_MTT, mailbox, count)[0] == Status.BAD_PARAM
    unmapped = bytes(WRITE_MTT.pack(offset=TABLE_BYTES))
    assert driver.try_command(Opcode.WRITE_MTT, unmapped, 1)[0] == Status.ICM_ERROR


@given(
    order=st.permutations(range(6)),
    offset=st.integers(0, 6 * 4096 - 1),
    length=st.integers(0, 3 * 4096),
)
def test_a_queue_buffer_reads_what_it_wrote(order: list[int], offset: int, length: int) -> None:
    host = FakeHost(size=6 * 4096)
    buffer = OwnedBuffer(host, [BASE + 4096 * page for page in order], 12)
    length = min(length, buffer.length - offset)
    content = bytes((offset + index) * 7 & 0xFF for index in range(length))
    buffer.write(offset, content, What.OTHER)
    assert buffer.read(offset, length, What.OTHER) == content
    assert sum(part for _, part in buffer.runs(offset, length)) == length


def test_filling_marks_the_owner_byte_of_every_entry_within_the_length() -> None:
    host = FakeHost()
    pages = [BASE + 0x3000, BASE + 0x4000, BASE]
    deque(OwnedBuffer(host, pages, 12, 2 * 4096 + 2048).fill_owner(32), maxlen=0)
    whole = b"".join(host.peek(page, 4096) for page in pages)
    assert whole[31 : 2 * 4096 + 2048 : 32] == b"\x80" * (2 * 128 + 64)
    assert not any(whole[2 * 4096 + 2048 :])


def test_entries_fail_before_a_byte_moves() -> None:
    host = FakeHost(size=4096)
    buffer = OwnedBuffer(host, [BASE, 0xBAD000], 12)
    with pytest.raises(DmaError):
        buffer.write_entry(4096, bytes(32), What.CQE)
    with pytest.raises(CommandError) as caught:
        deque(buffer.fill_owner(32), maxlen=0)
    assert caught.value.status == Status.BAD_PARAM
    assert not any(host.peek(BASE, 4096))


def test_a_queue_across_two_regions_of_guest_memory_is_filled_and_logged_once() -> None:
    host = FakeHost(size=2 * 4096)
    host.map(BASE + 2 * 4096, 2 * 4096)
    deque(OwnedBuffer(host, [BASE + 4096 * page for page in range(4)], 12).fill_owner(32), maxlen=0)
    assert host.peek(BASE, 4 * 4096)[31::32] == b"\x80" * 512
    assert [(event.address, event.length) for event in host.events] == [(BASE, 4 * 4096)]


def test_addresses_of_a_queue_are_cut_to_whole_pages() -> None:
    """An address eight bytes before a page would let every entry lie across two regions."""
    host = FakeHost(size=4096)
    host.map(BASE + 4096, 4096)
    buffer = OwnedBuffer(host, [BASE + 4096 - 8, BASE + 0x1FFF], 12)
    buffer.write_entry(0, b"\1" * 32, What.CQE)
    buffer.write_entry(4096 + 32, b"\2" * 32, What.CQE)
    assert host.peek(BASE, 32) == b"\1" * 32
    assert host.peek(BASE + 4096 + 32, 32) == b"\2" * 32
    assert OwnedBuffer(host, [BASE + 4096], 16).address(0) == BASE & -1 << 16


def test_a_queue_longer_than_the_image_is_filled_to_its_end() -> None:
    length = 5 * FILL_BYTES + 4096
    host = FakeHost(size=length + 4096)
    deque(OwnedBuffer(host, range(BASE, BASE + length, 4096), 12).fill_owner(32), maxlen=0)
    assert host.peek(BASE, length)[31::32] == b"\x80" * (length // 32)
    assert not any(host.peek(BASE + length, 4096))


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 24), st.integers(0, 8), st.integers(0, 40)),
        max_size=30,
    )
)
def test_extents_are_a_dictionary_of_pages(steps: list[tuple[bool, int, int, int]]) -> None:
    ranges, pages = PageRanges(), dict[int, int]()
    for mapping, start, count, target in steps:
        for page in range(start, start + count):
            pages.pop(page, None)
            if mapping:
                pages[page] = target + page - start
        if mapping and count:
            ranges.map(start << 12, count << 12, target << 12)
        else:
            ranges.unmap(start << 12, count << 12)
    for page in range(34):
        found = ranges.find((page << 12) + 5)
        expected = None if page not in pages else (pages[page] << 12) + 5
        assert (found and found[0]) == expected
    assert ranges.total == len(pages) << 12
    assert len(ranges) <= len(pages)


def test_lending_a_terabyte_costs_a_few_ranges() -> None:
    """256 entries of 1 GiB each: the guest must not make the device remember each page."""
    driver = Driver()
    for command in range(4):
        entries = b"".join(
            MAP_ENTRY.pack(virtual=(command * 256 + n) << 30, page=BASE >> 12, log_pages=18)
            for n in range(256)
        )
        driver.command(Opcode.MAP_ICM, entries, 256)
    assert driver.adapter.icm.mapped_pages == 1 << 28
    driver.command(Opcode.UNMAP_ICM, 0, (1 << 32) - 1)
    assert driver.adapter.icm.mapped_pages == 0


def test_pages_in_too_many_pieces_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bluebridge.device.mlx4.memory.icm.MAX_RANGES", 8)
    driver = Driver()
    entries = b"".join(MAP_ENTRY.pack(virtual=n << 13, page=BASE >> 12) for n in range(9))
    assert driver.try_command(Opcode.MAP_ICM, entries, 9)[0] == Status.EXCEED_LIM
    assert driver.adapter.icm.mapped_pages == 8
