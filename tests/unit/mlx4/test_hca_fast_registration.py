"""Fast registration: its life, its limits, what it must leave alone."""

from __future__ import annotations

from struct import pack

import pytest

from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from bluebridge.device.mlx4.rings.work_requests import registration_of
from bluebridge.device.rdma.memory.region import AccessError, Rights
from bluebridge.device.rdma.memory.regions import Registration
from tests.models.hca_driver import ALL_RIGHTS, Driver
from tests.models.rdma_node import Pair, SendOpcode
from tests.unit.mlx4.test_hca_mpt import LENGTH, PAGES, PD, START, resolve

FAST_PAGES = [0x300000, 0x301000]


def register(driver: Driver, key: int, **changes: int) -> None:
    """REG_MR of two pages, all rights."""
    values = {"pd": PD, "start": START, "length": 0x1000, "shift": 12, "rights": ALL_RIGHTS}
    values |= changes
    wanted = Registration(
        key, values["start"], values["length"], 0, values["shift"], values["rights"],
        lambda count: (FAST_PAGES * 300)[:count],
    )  # fmt: skip
    driver.adapter.regions.fast_register(wanted, values["pd"])


def test_the_life_of_a_fast_registration(driver: Driver) -> None:
    base = driver.create_fast_mr(4)
    regions = driver.adapter.regions
    with pytest.raises(AccessError):
        resolve(driver, base, START, 1)
    for low in (1, 2, 0, 255):
        register(driver, base | low)
        assert resolve(driver, base | low, START, 0x1000) == [(0x300123, 0x1000)]
        for stale in {0, 1, 2, 255} - {low}:
            with pytest.raises(AccessError):
                resolve(driver, base | stale, START, 1)
        with pytest.raises(AccessError):
            register(driver, base | 7)
        for bad, pd in ((base | low ^ 1, PD), (base | low, PD + 1)):
            with pytest.raises(AccessError):
                regions.invalidate(bad, pd)
        regions.invalidate(base | low, PD)
        with pytest.raises(AccessError):
            resolve(driver, base | low, START, 1)
        regions.invalidate(base | low, PD)
        with pytest.raises(AccessError):
            regions.invalidate(base | low, PD, remote=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"pd": 2},
        {"length": 0x1FFF},
        {"length": 0x1000000},
        {"length": 0},
        {"shift": 8},
        {"shift": 32},
        {"start": (1 << 64) - 1},
        {"rights": Rights.REMOTE_WRITE | Rights.LOCAL_READ},
        {"rights": Rights.REMOTE_ATOMIC},
    ],
)
def test_fast_registrations_that_fail_change_nothing(
    driver: Driver, changes: dict[str, int]
) -> None:
    key = driver.create_fast_mr(2)
    with pytest.raises(AccessError):
        register(driver, key, **changes)
    register(driver, key)


def test_a_registration_has_no_more_pages_than_its_region(driver: Driver) -> None:
    key = driver.create_fast_mr(1)
    with pytest.raises(AccessError, match="2 pages, the MR has room for 1"):
        register(driver, key)
    register(driver, key, length=0x1000 - 0x123)


def test_a_queue_pair_registers_only_where_it_was_allowed_to() -> None:
    """`fast_reg_enable` of the context: user space's queue pairs do not have it."""
    pair = Pair(fast_reg_enable=0).connect()
    key = pair.a.create_fast_mr(1)
    pages, _ = pair.a.memory(4096)
    pair.a.host.poke(pages, pack(">Q", pages | 1))
    request = pack(">IIQQQII", 1 << 28, key, pages, pages, 4096, 0, 12) + bytes(8)
    pair.post_send(SendOpcode.FAST_REG_MR, request)
    assert pair.sent() == [CompletionStatus.LOCAL_QP_OP_ERR]


def test_ordinary_regions_are_neither_registered_nor_invalidated_by_work_requests(
    driver: Driver,
) -> None:
    key = driver.create_mr(START, LENGTH, PAGES)
    with pytest.raises(AccessError):
        register(driver, key)
    with pytest.raises(AccessError):
        driver.adapter.regions.invalidate(key, PD)
    with pytest.raises(AccessError):
        register(driver, 0x7000 << 8)
    assert resolve(driver, key, START, 1)


def test_a_key_of_another_index_is_refused_even_when_it_masks_to_the_same(driver: Driver) -> None:
    key = driver.create_fast_mr(2)
    with pytest.raises(AccessError):
        register(driver, key | 1 << 31)


def test_fast_registration_rights(driver: Driver) -> None:
    for flags, rights in ((0x1F << 27, ALL_RIGHTS), (1 << 29, Rights.REMOTE_READ)):
        assert registration_of(pack(">IIQQQII", flags, *[0] * 6), lambda *_: []).rights == rights
    key = driver.create_fast_mr(2)
    register(driver, key, rights=Rights.REMOTE_READ)
    assert resolve(driver, key, START, 1, Rights.REMOTE_READ)
    with pytest.raises(AccessError):
        resolve(driver, key, START, 1, Rights.REMOTE_WRITE)


def test_pages_of_all_regions_together_are_bounded(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces come back with invalidation and destruction; neighbours count as one."""
    monkeypatch.setattr("bluebridge.device.rdma.memory.regions.MAX_PIECES", 4)
    scattered = [0x10000, 0x20000, 0x30000]
    key = driver.create_mr(0x40000000, 3 * 4096, scattered)
    driver.create_mr(0x40000000, 3 * 4096, [0x10000, 0x11000, 0x12000])
    fast = driver.create_fast_mr(3)
    with pytest.raises(AccessError):
        register(driver, fast)
    extra = driver.mtt(scattered)
    entry = bytes(driver.mpt(0x60 << 8, 0x40000000, 3 * 4096, extra))
    assert driver.try_command(Opcode.SW2HW_MPT, entry, 0x60)[0] == Status.EXCEED_LIM
    driver.command(Opcode.HW2SW_MPT, 0, key >> 8, 1)
    for _ in range(5):
        register(driver, fast)
        driver.adapter.regions.invalidate(fast, PD)
    driver.command(Opcode.SW2HW_MPT, entry, 0x60)
