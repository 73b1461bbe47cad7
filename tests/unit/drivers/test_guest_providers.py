"""Which provider of verbs the guest's programs take, and whether they use BlueFlame."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.drivers.common.blueflame import USES, BlueFlameUse, use_of
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.providers import BLUEFLAME_USES, open_device
from bluebridge.guest.verbs import DeviceLost


def stranger(vendor: int, device: int) -> Bus:
    """A function that no driver here knows; nothing but config space may be touched."""
    identity = {0: vendor, 2: device}
    return cast(Bus, SimpleNamespace(load_config=lambda offset, _: identity[offset]))


def test_a_function_without_provider() -> None:
    with pytest.raises(DeviceError, match="8086:10d3 has no driver with verbs here"):
        open_device(stranger(0x8086, 0x10D3))


def test_a_function_that_is_gone() -> None:
    with pytest.raises(DeviceLost, match="the device is gone"):
        open_device(stranger(0xFFFF, 0xFFFF))


def test_a_connectx5_has_no_wrong_page() -> None:
    with pytest.raises(DeviceError, match="choose on, off or old-size"):
        open_device(stranger(0x15B3, 0x1017), blueflame="wrong-page")


def test_words() -> None:
    assert USES == ("off", "on", "wrong-page", "old-size") == tuple(BLUEFLAME_USES)
    assert [use_of(word) for word in USES] == [
        None,
        BlueFlameUse(),
        BlueFlameUse(wrong_page=True),
        BlueFlameUse(old_size_rule=True),
    ]


def test_another_word() -> None:
    with pytest.raises(ValueError, match="BlueFlame fast: choose from off, on, wrong-page"):
        use_of("fast")
