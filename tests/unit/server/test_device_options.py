"""The tables of the device server's options: what is parsed is what is written."""

from __future__ import annotations

import argparse

import pytest

from bluebridge.device.server import bridge_options, option_table, options
from bluebridge.device.server.bridge_options import BridgeOptions
from bluebridge.device.server.option_table import Table
from bluebridge.device.server.options import ServerOptions


def _parse(
    words: list[str], names: tuple[str, ...] | None = None, table: type[Table] = ServerOptions
) -> Table:
    parser = argparse.ArgumentParser()
    option_table.add_arguments(table, parser, names)
    return option_table.of_arguments(table, parser.parse_args(words), names)


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
        (ServerOptions(log_limit=4 << 30), ["--log-limit", str(4 << 30)]),
        (ServerOptions(capture=0, large_cqes=True), ["--large-cqes", "--capture", "0"]),
        (BridgeOptions(), []),
        (
            BridgeOptions(bar_sizes="ntrdma", window_alias=True),
            ["--bar-sizes", "ntrdma", "--window-alias"],
        ),
        (
            BridgeOptions("intel-gen1", hang_on=("sdoorbell", "sb01base")),
            ["--ntb-model", "intel-gen1", "--hang-on", "sdoorbell", "--hang-on", "sb01base"],
        ),
        (BridgeOptions(strict_windows=True), ["--strict-windows"]),
    ],
)
def test_what_is_written_is_what_is_read(chosen: Table, words: list[str]) -> None:
    assert option_table.words(chosen) == words
    assert _parse(words, table=type(chosen)) == chosen


def test_a_command_may_have_some_of_them() -> None:
    names = ("link", "pro")
    assert _parse(["--pro"], names) == ServerOptions(pro=True)
    parser = argparse.ArgumentParser()
    option_table.add_arguments(ServerOptions, parser, names)
    assert option_table.given(ServerOptions, parser.parse_args([]), names) == {}
    parsed = parser.parse_args(["--link", "ethernet"])
    assert option_table.given(ServerOptions, parsed, names) == {"link": "ethernet"}
    with pytest.raises(SystemExit):
        parser.parse_args(["--capture", "64"])


@pytest.mark.parametrize("words", [["--ports", "3"], ["--blueflame-size", "100"], ["--capture=-1"]])
def test_values_that_cannot_be(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(words)


@pytest.mark.parametrize("words", [["--ntb-model", "gen9"], ["--hang-on", "other"]])
def test_values_that_no_bridge_has(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        _parse(words, table=BridgeOptions)


def test_defaults() -> None:
    assert _parse([]) == options.DEFAULTS
    assert _parse([], table=BridgeOptions) == bridge_options.DEFAULTS


def test_the_limit_of_the_log_has_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert _parse(["--log-limit", "4GiB"]) == ServerOptions(log_limit=4 << 30)
    assert _parse(["--log-limit", "1048576"]) == ServerOptions(log_limit=1 << 20)
    for wrong in ("1KiB", "4TB", "-1GiB"):
        with pytest.raises(SystemExit):
            _parse(["--log-limit", wrong])
    assert "1KiB is less than 1MiB" in capsys.readouterr().err
