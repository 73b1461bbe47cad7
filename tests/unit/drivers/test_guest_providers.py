"""Which provider of verbs the guest's programs take, and whether they use BlueFlame."""

from __future__ import annotations

import pytest

from bluebridge.guest.drivers.bus.interface import DmaMemory
from bluebridge.guest.drivers.hca.posting.blueflame import USES, BlueFlameUse, use_of
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.providers import BLUEFLAME_USES, open_device
from bluebridge.guest.verbs import DeviceLost


class Stranger:
    """A function that no driver here knows; nothing but config space may be touched."""

    def __init__(self, vendor: int, device: int) -> None:
        self._identity = {0: vendor, 2: device}

    def load_config(self, offset: int, width: int) -> int:
        """Vendor and device."""
        return self._identity[offset]

    def read32(self, bar: int, offset: int) -> int:
        """Not allowed."""
        raise AssertionError

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Not allowed."""
        raise AssertionError

    write64 = write32

    def allocate(self, length: int, align: int = 4096) -> DmaMemory:
        """Not allowed."""
        raise AssertionError

    def enable_interrupts(self, vectors: int) -> list[int]:
        """Not allowed."""
        raise AssertionError

    def reset(self) -> None:
        """Not allowed."""
        raise AssertionError

    abandon = close = reset


def test_a_function_without_provider() -> None:
    with pytest.raises(DeviceError, match="8086:10d3 has no driver with verbs here"):
        open_device(Stranger(0x8086, 0x10D3))


def test_a_function_that_is_gone() -> None:
    with pytest.raises(DeviceLost, match="the device is gone"):
        open_device(Stranger(0xFFFF, 0xFFFF))


def test_words_for_blueflame() -> None:
    assert BLUEFLAME_USES[0] == "off"


def test_words() -> None:
    assert USES == ("off", "on", "wrong-page", "old-size")
    assert [use_of(word) for word in USES] == [
        None,
        BlueFlameUse(),
        BlueFlameUse(wrong_page=True),
        BlueFlameUse(old_size_rule=True),
    ]


def test_another_word() -> None:
    with pytest.raises(ValueError, match="BlueFlame fast: choose from off, on, wrong-page"):
        use_of("fast")
