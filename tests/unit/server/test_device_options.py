"""Options of the device server, and the peers that `--wire` names."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.settings import NetworkSettings
from bluebridge.device.mlx4.settings.config import Features
from bluebridge.device.server import option_table, options, settings
from bluebridge.device.server.option_table import Table
from bluebridge.device.server.options import (
    BridgeOptions,
    ServerOptions,
    between_hosts,
    hosts,
    own_address,
    vni,
    wire,
)
from bluebridge.device.server.settings import (
    FunctionSpec,
    HcaSpec,
    ServerSettings,
    parse_hca,
    parse_nic,
)
from bluebridge.device.underlay.tunnel import Endpoint
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab.config import LabConfig


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
        (ServerOptions(ack_timeout_factor=2.5), ["--ack-timeout-factor", "2.5"]),
        (ServerOptions(rnr="fast"), ["--rnr", "fast"]),
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
    assert _parse([], table=BridgeOptions) == options.BRIDGE_DEFAULTS


def test_the_limit_of_the_log_has_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert _parse(["--log-limit", "4GiB"]) == ServerOptions(log_limit=4 << 30)
    assert _parse(["--log-limit", "1048576"]) == ServerOptions(log_limit=1 << 20)
    for wrong in ("1KiB", "4TB", "-1GiB"):
        with pytest.raises(SystemExit):
            _parse(["--log-limit", wrong])
    assert "1KiB is less than 1MiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    "path", ["/run/a.sock", "/run/x,y/a.sock", "a,b,,c", "/run/k=v,w/a", "/run/,nameless=1"]
)
def test_a_path_may_hold_commas(path: str) -> None:
    for text in (f"name=a,socket={path}", f"socket={path},name=a"):
        spec = parse_hca(text, 1)
        assert (spec.name, spec.socket, spec.mac[-1]) == ("a", Path(path), 2)
    spec = parse_hca(f"name=a,socket={path},mac=00:02:c9:01:02:03")
    assert (spec.socket, spec.mac) == (Path(path), bytes.fromhex("0002c9010203"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name=a", "name= and socket= are needed"),
        ("name=a,socket=", "'socket=' is not one of"),
        ("a,socket=x", "'a' is not one of name="),
        ("name=a,speed=40,socket=x", "no comma in a name"),
        ("name=a,socket=x,mac=01:00:00:00:00:00", "unicast"),
    ],
)
def test_nonsense_is_one_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse_hca(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("more", ["", ",mac=52:54:00:00:00:01,link=infiniband", ",mac=x,net=3"])
def test_a_nic_has_an_address_and_nothing_else(more: str) -> None:
    with pytest.raises(ValueError, match="write name=, socket= and mac="):
        parse_nic(f"name=b,socket=/run/b{more}")


LABS = ("127.0.0.1:5001", "127.0.0.1:5002", "127.0.0.2:5001", "[::1]:5001")


def test_labs_that_name_each_other_agree_on_their_numbers() -> None:
    found = []
    for own in LABS:
        others = ",".join(each for each in LABS if each != own)
        found.append(hosts(others, own).site)
    assert found == [0, 1, 2, 3]


def test_the_own_address_is_the_one_on_the_way() -> None:
    found = hosts("127.0.0.7:5001")
    assert found.own == Endpoint("127.0.0.1", 5001)
    assert found.peers == (Endpoint("127.0.0.7", 5001),)


@pytest.mark.parametrize(
    "text",
    [
        "package", "host", "host:", "host:0", "host:65536", "a:1,b", "a:1,", "::1:5001",
        ",".join(f"10.0.0.{n}:1" for n in range(16)),
    ],
)  # fmt: skip
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        wire(text)


def test_what_names_hosts_is_kept() -> None:
    for text in ("messages", "packets", "host:4789", "[fe80::1]:4789,10.0.0.1:1"):
        assert wire(text) == text
    assert [between_hosts(text) for text in ("messages", "packets", "h:1")] == [False, False, True]
    assert own_address("[::]:4789") == "[::]:4789"


@pytest.mark.parametrize(
    ("asked", "own", "said"),
    [
        ("127.0.0.1:5001", "", "127.0.0.1:5001 is named twice"),
        ("127.0.0.2:1,127.0.0.2:1", "", "a host is named twice"),
        ("127.0.0.2:1", "0.0.0.0:1", "is all addresses"),
        ("no.such.host.invalid:1", "", "no.such.host.invalid"),
    ],
)
def test_a_wire_that_leads_nowhere_is_one_line(asked: str, own: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        hosts(asked, own)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match=said):
        LabConfig(options=ServerOptions(wire=asked, underlay=own)).of_wire()


@pytest.mark.parametrize("text", ["0", "-1", "16777216", "x", "", "٣"])
def test_a_network_that_there_is_not_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        vni(text)


def test_joined_labs_share_no_address() -> None:
    configs = [
        LabConfig(
            names=tuple("abcdefgh"),
            options=ServerOptions(wire=",".join({*LABS} - {own}), underlay=own),
        ).of_wire()
        for own in LABS
    ]
    addresses = [config.address(name) for config in configs for name in config.names]
    assert addresses[:2] == ["10.9.0.1/24", "10.9.0.2/24"]
    assert addresses[8:10] == ["10.9.0.11/24", "10.9.0.12/24"]
    assert len(set(addresses)) == 8 * len(LABS)


def test_sites_and_pairs_share_no_mac_address() -> None:
    macs = [
        LabConfig(number=pair, site=site).hca_mac(index)
        for site in range(16)
        for pair in (1, 2, 99)
        for index in (0, 15)
    ]
    assert len(set(macs)) == len(macs)
    assert all(mac.startswith(bytes((0, 2, 0xC9))) for mac in macs)


@pytest.mark.parametrize(
    ("words", "nic", "factor"),
    [
        ("--wire packets", False, 1),
        ("--wire packets", True, 4),
        ("--wire 127.0.0.1:4789", False, 4),
        ("--wire packets --ack-timeout-factor 2", True, 2),
    ],
)
def test_peers_that_are_slow_to_answer_get_more_time(words: str, nic: bool, factor: float) -> None:
    given = [*words.split(), *(("--nic", "name=b,socket=/s,mac=52:54:00:00:00:01") if nic else ())]
    assert _settings(given).network.ack_timeout_factor == factor


def _settings(words: list[str]) -> ServerSettings:
    parser = argparse.ArgumentParser()
    settings.add_arguments(parser)
    return settings.of_arguments(parser.parse_args(words))


@pytest.mark.parametrize(
    ("words", "features", "network"),
    [
        ("", Features(), NetworkSettings()),
        ("--sm none --link infiniband", Features(), NetworkSettings(managed=False)),
        ("--rnr fast", Features(), NetworkSettings(fast_rnr=True)),
        ("--trusting", Features(), NetworkSettings(trusting=True)),
        ("--wire packets --pro", Features(pro=True), NetworkSettings(packets=True)),
        ("--ports 2 --large-cqes", Features(ports=2, large_cqes=True), NetworkSettings()),
        (
            "--blueflame on --blueflame-size 256",
            Features(blueflame=True, blueflame_register=256),
            NetworkSettings(),
        ),
    ],
)
def test_an_option_is_for_the_card_or_for_the_network(
    words: str, features: Features, network: NetworkSettings
) -> None:
    found = _settings(words.split())
    assert (found.features, found.network) == (features, network)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--card connectx5 --pro", "--pro: a ConnectX-5 has RoCE v2 without that"),
        (
            "--card connectx5 --large-cqes",
            "--large-cqes: a ConnectX-5 has entries of 64 bytes anyway",
        ),
        (
            "--card connectx5 --blueflame-size 1024",
            "--blueflame-size: a ConnectX-5 has BlueFlame registers of 512 bytes",
        ),
        ("--card connectx5 --ports 2", "--ports: a ConnectX-5 has one port"),
        ("--link infiniband --card connectx5", "--link: a ConnectX-5 speaks Ethernet"),
        ("--ports 2 --hca name=b,socket=/b,card=connectx5", "--ports: a ConnectX-5 has one port"),
    ],
)
def test_options_of_another_card_are_refused(words: str, reason: str) -> None:
    wanted = _settings(["--hca", "name=a,socket=/a", *words.split()])
    with pytest.raises(ValueError, match=f"{re.escape(reason)}.*: leave it out"):
        wanted.check()


@pytest.mark.parametrize("words", ["--pro", "--large-cqes", "--blueflame-size 256"])
def test_an_option_is_taken_if_one_of_the_cards_has_it(words: str) -> None:
    text = "name=b,socket=/b,mac=00:02:c9:01:02:03,card=connectx5"
    _settings(["--hca", "name=a,socket=/a", "--hca", text, *words.split()]).check()


def test_each_hca_has_its_card() -> None:
    found = _settings(
        [
            "--card",
            "connectx5",
            "--hca",
            "name=a,socket=/a",
            "--hca",
            "name=b,socket=/b,card=connectx3",
        ]
    )
    assert [each.card for each in found.hcas] == ["connectx5", "connectx3"]
    assert _settings(found.words()) == found
    with pytest.raises(ValueError, match="card= is connectx3 or connectx5"):
        _settings(["--hca", "name=a,socket=/a,card=x"])


def test_a_server_reads_the_settings_that_were_written() -> None:
    """The object that the lab makes is the one that the server gets, whatever is in it."""
    a, b = (HcaSpec(name, Path(f"/run/{name},x"), bytes((2, 0, 0, 0, 0, 9))) for name in "ab")
    wanted = ServerSettings(
        hcas=(a, replace(b, link=LinkLayer.INFINIBAND, network=3)),
        nics=(b,),
        bridges=(FunctionSpec("a", Path("/n a")),),
        engines=(FunctionSpec("a", Path("/e=1")), FunctionSpec("b", Path("/e,2"))),
        log=Path("/log"),
        control=Path("/control"),
        options=ServerOptions(ports=2, wire="packets", trusting=True, log_limit=1 << 30),
        bridge=BridgeOptions(bar_sizes="ntrdma", hang_on=("sdoorbell", "sb01base")),
    )
    assert _settings(wanted.words()) == wanted
    assert _settings(ServerSettings().words()) == ServerSettings()
    assert _settings([*wanted.words(), "--no-log"]) == replace(wanted, log=None)
    infiniband = ServerSettings(
        (replace(a, link=LinkLayer.INFINIBAND),), options=ServerOptions(link="infiniband")
    )
    assert _settings(infiniband.words()) == infiniband
    assert "link=" not in " ".join(infiniband.words())
