"""`--interface`: which device, port and address a word names, and which go together."""

from __future__ import annotations

import pytest

from bluebridge.guest.protocols.rtrs.transport.interfaces import (
    AddressError,
    InterfaceWords,
    open_interfaces,
    parse_interface,
)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("00:03.0/2=10.9.0.1/16", InterfaceWords("0000:00:03.0", 2, "10.9.0.1", 16)),
        ("0001:00:03.0=10.9.0.1", InterfaceWords("0001:00:03.0", 1, "10.9.0.1", 24)),
        ("ntrdma=10.9.4.1/24", InterfaceWords("", 1, "10.9.4.1", 24, "ntb+dma")),
        ("ntrdma:ntb+cpu=10.9.4.1", InterfaceWords("", 1, "10.9.4.1", 24, "ntb+cpu")),
        ("ntrdma:c:10.0.0.1:99=10.9.4.1", InterfaceWords("", 1, "10.9.4.1", 24, "c:10.0.0.1:99")),
    ],
)
def test_what_a_word_names(word: str, found: InterfaceWords) -> None:
    assert parse_interface(word) == found


@pytest.mark.parametrize("word", ["eth0=10.0.0.1", "ntrdma", "ntrdma:=10.0.0.1", "ntrdma=x", ""])
def test_words_that_name_nothing(word: str) -> None:
    with pytest.raises(AddressError, match=r"is no \[FUNCTION"):
        parse_interface(word)


def test_an_address_that_is_none() -> None:
    with pytest.raises(AddressError, match=r"10\.0\.0\.1/33 is no IPv4 address"):
        parse_interface("ntrdma=10.0.0.1/33")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ntrdma=10.9.4.1", "ntrdma=10.9.5.1"], "one NTRDMA device, and that has one address"),
        (["ntrdma:s:0.0.0.0:99=10.9.4.1", "00:03.0=10.9.0.1"], "memory of its own"),
    ],
)
def test_what_cannot_be_together(words: list[str], said: str) -> None:
    with (
        pytest.raises(AddressError, match=said),
        open_interfaces([parse_interface(word) for word in words], wait=False),
    ):
        pass
