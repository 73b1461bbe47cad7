"""The words by which the guest's programs are told how to use BlueFlame."""

from __future__ import annotations

import pytest

from bluebridge.guest.drivers.hca.posting.blueflame import USES, BlueFlameUse, use_of


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
