"""The table of the device server's options: what it parses is what it writes."""

from __future__ import annotations

import argparse

import pytest

from bluebridge.device import options
from bluebridge.device.options import DEFAULTS, ServerOptions


def _parse(words: list[str], names: tuple[str, ...] | None = None) -> ServerOptions:
    parser = argparse.ArgumentParser()
    options.add_arguments(parser, names)
    return options.of_arguments(parser.parse_args(words), names)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (ServerOptions(), []),
        (ServerOptions(link="infiniband", sm="none"), ["--link", "infiniband", "--sm", "none"]),
        (ServerOptions(ports=2, pro=True), ["--ports", "2", "--pro"]),
        (
            ServerOptions(blueflame="on", blueflame_size=256),
            ["--blueflame", "on", "--blueflame-size", "256"],
        ),
        (ServerOptions(capture=0, large_cqes=True), ["--large-cqes", "--capture", "0"]),
    ],
)
def test_what_is_written_is_what_is_read(chosen: ServerOptions, words: list[str]) -> None:
    assert options.words(chosen) == words
    assert _parse(words) == chosen


def test_a_command_may_have_some_of_them() -> None:
    names = ("link", "pro")
    assert _parse(["--pro"], names) == ServerOptions(pro=True)
    parser = argparse.ArgumentParser()
    options.add_arguments(parser, names)
    assert options.given(parser.parse_args([]), names) == {}
    assert options.given(parser.parse_args(["--link", "ethernet"]), names) == {"link": "ethernet"}
    with pytest.raises(SystemExit):
        parser.parse_args(["--capture", "64"])


@pytest.mark.parametrize("words", [["--ports", "3"], ["--blueflame-size", "100"], ["--capture=-1"]])
def test_values_that_cannot_be(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(words)


def test_defaults() -> None:
    assert _parse([]) == DEFAULTS
