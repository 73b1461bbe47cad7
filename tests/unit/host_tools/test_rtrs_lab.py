"""Pairs made ready for RTRS: options, addresses, what a guest has; what the commands read."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.server.networks import Networks
from bluebridge.device.server.options import ServerOptions
from bluebridge.device.server.settings import parse_hca
from bluebridge.host_tools.commands.up_options import sides
from bluebridge.host_tools.keeper.record import Plan
from bluebridge.host_tools.lab import root_ports
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.rtrs.fio import Found, found_in
from bluebridge.host_tools.rtrs.session import Cut, Cutter, ntrdma_config
from bluebridge.host_tools.rtrs.sides import parse, routes
from tests.campaigns import rtrs_matrix as matrix
from tests.campaigns.rtrs_matrix import Outcome


def test_one_side_is_for_both_guests() -> None:
    assert sides("kernel") == ("kernel", "kernel")
    assert sides("python:kernel") == ("python", "kernel")
    for wrong in ("", "rust", "kernel:python:kernel"):
        with pytest.raises(argparse.ArgumentTypeError):
            sides(wrong)


def test_each_guest_has_the_driver_of_its_side() -> None:
    config = LabConfig(rtrs=("kernel", "python"), hcas=2)
    assert [config.kernel_drives(name) for name in "ab"] == [True, False]
    assert [config.binds(name) for name in "ab"] == [False, True]
    assert Plan(config).devices("a") == ("2 HCAs (mlx4)",)
    assert Plan(config).devices("b") == ("2 HCAs (vfio-pci)",)


def test_every_pair_of_ports_is_a_route_in_a_subnet_of_its_own() -> None:
    config = LabConfig(hcas=2, options=ServerOptions(ports=2), names=("a2", "b2"))
    found = routes(config)
    assert [route.port for route in found] == ["a2/1", "a2/2", "a2.1/1", "a2.1/2"]
    assert [route.words for route in found] == [
        f"10.9.{subnet}.1@10.9.{subnet}.2" for subnet in range(4)
    ]
    assert found[0].name == "ip:10.9.0.1@ip:10.9.0.2"


def test_ntrdma_is_a_route_beside_the_port() -> None:
    config = ntrdma_config()
    over_bridge, over_port = routes(config)
    assert (over_bridge.words, over_bridge.port) == ("10.9.4.1@10.9.4.2", "")
    assert (over_port.words, over_port.port) == ("10.9.0.1@10.9.0.2", "a/1")
    alone = routes(replace(config, hca=False))
    assert alone == [over_bridge]


def test_second_hcas_have_a_network_of_their_own() -> None:
    config = LabConfig(hcas=2)
    ports = {name: root_ports.sockets(config, Path("/x"), name) for name in "ab"}
    hcas = root_ports.hcas(config, ports)
    assert [hca.name for hca in hcas] == ["a", "b", "a.1", "b.1"]
    assert [hca.network for hca in hcas] == [0, 0, 1, 1]
    specs = [parse_hca(f"name=x,socket=x,net={number}") for number in (0, 1)]
    networks = Networks([(spec.link, spec.network) for spec in specs], 2, lambda *_: None)
    first, second = (networks.of(LinkLayer.ETHERNET, number) for number in (0, 1))
    assert len({*first, *second}) == 4
    for wrong in ("net=16", "net=-1", "net=x"):
        with pytest.raises(ValueError, match="net="):
            parse_hca(f"name=x,socket=x,{wrong}")


@pytest.mark.parametrize(
    ("how", "lines"),
    [(Cut.SILENT, ["drop a/2", "remove a/2"]), (Cut.LOUD, ["link a/2 down", "link a/2 up"])],
)
def test_a_cut_is_a_line_to_the_device_server(how: Cut, lines: list[str]) -> None:
    told: list[str] = []

    def tell(line: str) -> list[str]:
        told.append(line)
        return []

    cutter = Cutter(tell, how)
    cutter.cut("a/2")
    cutter.restore("a/2")
    assert told == lines


def test_the_files_of_a_path() -> None:
    client = parse("ip:10.9.0.1@ip:10.9.0.2|connected|7 28672 3 12288 0 2|1 4")
    assert (client.connected, client.failovers, client.reconnected) == (True, 2, 1)
    server = parse("ip:10.9.0.1@ip:10.9.0.2||7 28672 3 12288|")
    assert (server.connected, server.failovers, server.reconnected) == (False, 0, 0)


@pytest.mark.parametrize(
    ("error", "io_errors", "verify_errors"), [(0, 0, 0), (5, 1, 0), (84, 0, 1)]
)
def test_errors_of_the_disk_and_of_its_contents(
    error: int, io_errors: int, verify_errors: int
) -> None:
    rates = {"bw_bytes": 3 << 20}
    found = found_in({"error": error, "read": rates, "write": rates})
    assert (found.io_errors, found.verify_errors) == (io_errors, verify_errors)
    assert found.ok == (error == 0)
    assert found.read_rate == 3


def test_a_row_of_the_matrix_has_a_cell_for_each_column() -> None:
    outcome = Outcome(60, 3, 3, Found(0, 0, 10, 5), 7, 3)
    row = matrix.row(("kernel", "python"), outcome)
    assert row.count("|") == matrix.HEADER.splitlines()[0].count("|")
    assert row.startswith("| kernel | python | 60 s | 3 | 3 | 0 | 0 | 7 | 3 |")
