"""The grouping of interleaved BlueFlame stores of two processors."""

from __future__ import annotations

from bluebridge.host_tools.analyzer.analysis.triggers import BlueFlameStores, Trigger
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction

PAGE = 0x882000


def entry(place: int, qpn: int, index: int) -> list[Transaction]:
    """The sixteen stores of an entry of 128 bytes."""
    head = bytes((0, index >> 8, index & 0xFF, 8)) + (qpn << 8 | 8).to_bytes(4, "big")
    return [
        Transaction(
            0, 0.0, "a", Tlp.MEMORY_WRITE, Role.BLUEFLAME, False, place + at, 8,
            head if at == 0 else bytes(8),
        )
        for at in range(0, 128, 8)
    ]  # fmt: skip


def lines(found: list[Trigger]) -> dict[tuple[int, int | None], list[tuple[int, int, int]]]:
    """Lines by queue pair and index: place, bytes, stores."""
    return {
        (each.qpn, each.index): [(line.address, line.length, line.stores) for line in each.writes]
        for each in found
    }


def test_interleaved_stores_to_two_registers_of_a_page() -> None:
    """mlx4_en has a register of one page for each of its rings."""
    stores = BlueFlameStores()
    found: list[Trigger] = []
    for pair in zip(entry(PAGE, 0x208, 7), entry(PAGE + 512, 0x209, 3), strict=True):
        for store in pair:
            burst, begins, _ = stores.add(store)
            if begins and store.address % 512 == 0:
                found.append(burst)
    assert lines(found) == {
        (0x208, 7): [(PAGE, 64, 8), (PAGE + 64, 64, 8)],
        (0x209, 3): [(PAGE + 512, 64, 8), (PAGE + 576, 64, 8)],
    }


def test_an_incomplete_entry_is_not_continued() -> None:
    """Its sender stopped in the middle; the next entry begins at the same address."""
    stores = BlueFlameStores()
    for store in entry(PAGE, 0x208, 7)[:4]:
        stores.add(store)
    bursts = [stores.add(store)[0] for store in entry(PAGE, 0x208, 8)]
    assert lines(bursts[-1:]) == {(0x208, 8): [(PAGE, 64, 8), (PAGE + 64, 64, 8)]}
