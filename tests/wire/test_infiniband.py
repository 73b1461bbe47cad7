"""The server with InfiniBand ports: what it says at its doors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bluebridge.guest.drivers.common.health import HcaError
from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.host_tools.vfio_user.bus import SocketBus
from bluebridge.host_tools.vfio_user.client import Client
from tests.models.server import ROOT, functions
from tests.wire.conftest import StartServer

CONFIG_REGION = 7
CLASS_CODE = 9


def _hcas(folder: Path, count: int) -> list[str]:
    return functions(folder, names=[f"h{number}" for number in range(count)])


def test_the_function_is_an_infiniband_controller(
    start_server: StartServer, tmp_path: Path
) -> None:
    mixed = [*_hcas(tmp_path, 1), "--hca", f"name=e,socket={tmp_path / 'e'},link=ethernet"]
    start_server(
        "bluebridge.device", *mixed, "--link", "infiniband", "--log", str(tmp_path / "log")
    )
    for name, code in (("h0", "00060c"), ("e", "000002")):
        with Client(tmp_path / name) as client:
            assert client.read(CONFIG_REGION, CLASS_CODE, 3).hex() == code


def test_the_python_driver_says_that_it_is_for_ethernet(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(
        "bluebridge.device", *_hcas(tmp_path, 1), "--link", "infiniband", "--sm", "none"
    )
    bus = SocketBus(tmp_path / "h0")
    with pytest.raises(HcaError, match="not an Ethernet port"):
        open_hca(bus)
    bus.close()
    assert "Traceback" not in server.text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--link", "token-ring"], "invalid choice"),
        (["--sm", "opensm"], "invalid choice"),
        (["--hca", "name=x,socket=y,link=wifi"], "link= is ethernet or infiniband"),
    ],
)
def test_bad_words(words: list[str], said: str, tmp_path: Path) -> None:
    ended = _run([*_hcas(tmp_path, 1), *words])
    assert (ended.returncode, said in ended.stderr) == (2, True), ended.stderr


def test_more_adapters_than_the_switch_has_ports(tmp_path: Path) -> None:
    ended = _run([*_hcas(tmp_path, 9), "--link", "infiniband"])
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].endswith("the InfiniBand switch has 8 ports")
    assert not list(tmp_path.iterdir())


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bluebridge.device", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
