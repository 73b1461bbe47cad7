"""The words for hosts on a wire of packets."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bluebridge.device.server.options import ServerOptions, vni
from bluebridge.device.server.wire_peers import between_hosts, hosts, own_address, wire
from bluebridge.device.underlay.tunnel import Endpoint
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.device_server import ServerConfig

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
        "package",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "a:1,b",
        "a:1,",
        "::1:5001",
        ",".join(f"10.0.0.{n}:1" for n in range(16)),
    ],
)
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
        ServerConfig({}, None, Path(), pair=pair, site=site).mac(index)
        for site in range(16)
        for pair in (1, 2, 99)
        for index in (0, 15)
    ]
    assert len(set(macs)) == len(macs)
    assert all(mac.startswith("00:02:c9:") for mac in macs)
