"""Completion entries of 64 bytes, and with timestamps: both strides work, both halves are right."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_DEV_CAP, DevFlag
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.contexts import CQC
from bluebridge.device.layout.mlx4.cqe import CQE, OPCODE_RESIZE, TS_HIGH_OFFSET, TS_LOW_OFFSET
from bluebridge.device.mlx4.settings.clock import CORE_CLOCK_MHZ
from bluebridge.device.mlx4.settings.config import Features
from tests.models.hca_driver import COMP_EQN, UAR_PAGE, Driver

CQN = 0x90
LARGE = 64
LOG_SIZE = 3


class LargeDriver(Driver):
    """A driver that chooses 64-byte completions."""

    def __init__(self) -> None:
        super().__init__(features=Features(large_cqes=True))

    def init_mailbox(self) -> bytearray:
        """INIT_HCA with bit 30."""
        mailbox = super().init_mailbox()
        INIT_HCA.set(mailbox, "eqe_cqe_size", 1 << 30)
        return mailbox


def make(driver: Driver, *, timestamps: int = 0, log_size: int = LOG_SIZE) -> int:
    """SW2HW_CQ; where its ring is."""
    address, mtt = driver.buffer(LARGE << log_size)
    driver.command(
        Opcode.SW2HW_CQ,
        bytes(
            CQC.pack(
                log_size=log_size, uar=UAR_PAGE, eqn=COMP_EQN, mtt_addr=mtt,
                doorbell_record=driver.host.allocate(64, 64), timestamps=timestamps,
            )
        ),
        CQN,
    )  # fmt: skip
    return address


def plain(index: int) -> bytes:
    """An entry that a queue pair posts."""
    return bytes(CQE.pack(qpn=0x240, byte_count=index, wqe_index=index, opcode=8, is_send=1))


def test_large_entries_must_be_offered_first() -> None:
    for features, bit, status in ((True, 30, Status.OK), (False, 30, Status.BAD_PARAM),
                                  (True, 29, Status.BAD_PARAM)):  # fmt: skip
        driver = Driver(features=Features(large_cqes=features))
        flags = QUERY_DEV_CAP.get(driver.query(Opcode.QUERY_DEV_CAP), "flags_hi") << 32
        assert bool(flags & DevFlag.CQE_64B) == features
        mailbox = driver.init_mailbox()
        INIT_HCA.set(mailbox, "eqe_cqe_size", 1 << bit)
        assert driver.try_command(Opcode.INIT_HCA, bytes(mailbox))[0] == status


@pytest.mark.parametrize("together", [False, True])
def test_what_counts_is_the_second_half(together: bool) -> None:
    driver = LargeDriver().start()
    address = make(driver)
    queue = driver.adapter.cqs.get(CQN)
    assert queue is not None
    for index in range(1 << LOG_SIZE):
        assert driver.host.peek(address + index * LARGE + LARGE - 1, 1) == b"\x80"
    entries = [plain(index) for index in range(6)]
    if together:
        queue.post_many(entries)
    else:
        for entry in entries:
            queue.post(entry)
    for index, entry in enumerate(entries):
        assert driver.host.peek(address + index * LARGE, LARGE) == bytes(32) + entry
    driver.host.poke(queue.record, (6).to_bytes(4, "big"))
    queue.post_many([plain(9)] * 4)
    owners = [driver.host.peek(address + index * LARGE + 63, 1)[0] & 0x80 for index in range(8)]
    assert owners == [0x80, 0x80, 0, 0, 0, 0, 0, 0]


def test_resizing_large_entries() -> None:
    driver = LargeDriver().start()
    address = make(driver)
    queue = driver.adapter.cqs.get(CQN)
    assert queue is not None
    queue.post(plain(0))
    new, mtt = driver.buffer(LARGE << 4)
    driver.command(Opcode.MODIFY_CQ, bytes(CQC.pack(log_size=4, mtt_addr=mtt)), CQN)
    assert driver.host.peek(address + LARGE + 63, 1)[0] == OPCODE_RESIZE
    queue.post(plain(1))
    assert driver.host.peek(new + 2 * LARGE + 32, 32) == plain(1)


def clock_of(entry: bytes) -> int:
    """The timestamp of an entry."""
    high = int.from_bytes(entry[TS_HIGH_OFFSET : TS_HIGH_OFFSET + 4], "big")
    return high << 16 | int.from_bytes(entry[TS_LOW_OFFSET : TS_LOW_OFFSET + 2], "big")


@pytest.mark.parametrize("large", [False, True])
def test_timestamps_are_those_of_the_clock(large: bool) -> None:
    driver = (LargeDriver() if large else Driver()).start()
    address = make(driver, timestamps=1)
    stride = LARGE if large else 32
    assert QUERY_DEV_CAP.get(driver.query(Opcode.QUERY_DEV_CAP), "timestamps") == 1
    assert INIT_HCA.get(driver.query(Opcode.QUERY_HCA), "core_clock") == CORE_CLOCK_MHZ
    queue = driver.adapter.cqs.get(CQN)
    assert queue is not None
    ticks = []
    for index in range(2):
        before = int.from_bytes(driver.hca.bar_read(0, bar0.CLOCK_OFFSET, 8), "big")
        queue.post(plain(index))
        entry = driver.host.peek(address + index * stride + stride - 32, 32)
        assert before <= clock_of(entry) <= driver.read32(8) << 32 | driver.read32(12)
        assert (CQE.get(entry, "byte_count"), CQE.get(entry, "opcode")) == (index, 8)
        ticks.append(clock_of(entry))
    assert ticks == sorted(ticks)
