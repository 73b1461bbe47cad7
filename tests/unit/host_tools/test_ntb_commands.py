"""Tests of what `--ntb` asks for, and `bluebridge ntb demo`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.__main__ import main as device
from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.ntb import models
from bluebridge.device.ntb.selection import shape_of
from bluebridge.device.server.options import BridgeOptions
from bluebridge.device.server.settings import FunctionSpec, parse_function
from bluebridge.host_tools.arguments import parse
from bluebridge.host_tools.keeper.record import Plan
from bluebridge.host_tools.lab import root_ports
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.ntb_demo import packet_bounds


def test_every_model_has_an_emulation_and_a_log_name_of_its_own() -> None:
    assert all(shape_of(model).vectors for model in models.MODELS)
    suffixes = {model.log_suffix for model in models.MODELS}
    for table in (models.BY_NAME, models.BY_PCI_ID, suffixes):
        assert len(table) == len(models.MODELS)


def test_the_bridge_has_the_wide_port() -> None:
    config = LabConfig(hca=True, bridge=BridgeOptions("intel-gen4"))
    ports = {name: root_ports.sockets(config, Path("/f"), name) for name in config.names}
    assert set(ports["a"]) == {root_ports.HCA, root_ports.ENGINE, root_ports.BRIDGE}
    bridges = root_ports.functions_at(root_ports.BRIDGE, ports)
    engines = root_ports.functions_at(root_ports.ENGINE, ports)
    assert [each.name for each in bridges] == [each.name for each in engines] == ["a", "b"]
    assert bridges[1].socket == ports["b"][root_ports.BRIDGE]
    assert root_ports.functions_at(root_ports.BRIDGE, {"a": {root_ports.HCA: Path("h")}}) == ()


def test_up_takes_a_model_or_none() -> None:
    assert parse(["up"]).ntb == ""
    assert parse(["up", "--ntb"]).ntb == "intel-gen4"
    assert parse(["up", "--ntb", "intel-gen4", "--bar-sizes", "ntrdma"]).bar_sizes == "ntrdma"


def test_the_description_names_devices_and_drivers() -> None:
    config = LabConfig(hca=False, bridge=BridgeOptions("intel-gen4"), kernel=True)
    assert Plan(config).devices("a") == ("NTB intel-gen4 (ntb_netdev)", "DMA engine (ioatdma)")
    assert Plan(LabConfig()).devices("a") == ("HCA (vfio-pci)",)
    assert Plan(LabConfig(hca=False)).devices("a") == ()


def test_functions_on_the_server_s_command_line(tmp_path: Path) -> None:
    assert parse_function("--ntb", "name=a,socket=/x,y") == FunctionSpec("a", Path("/x,y"))
    for text in ("name=a", "socket=/x", "name=a,socket=", "mac=1"):
        with pytest.raises(ValueError, match="--dma"):
            parse_function("--dma", text)


def test_an_alias_wants_a_bridge_that_can_and_engines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [each for n in "ab" for each in ("--ntb", f"name={n},socket={tmp_path / n}")]
    assert device([*words, "--window-alias"]) == 2
    assert "wants --ntb-model intel-gen4 and --bar-sizes ntrdma" in capsys.readouterr().err
    assert device([*words, "--window-alias", "--bar-sizes", "ntrdma"]) == 2
    assert "--window-alias wants a DMA engine in a" in capsys.readouterr().err
    assert device([*words, "--hang-on", "sdoorbell"]) == 2
    assert "--hang-on wants --ntb-model intel-gen1" in capsys.readouterr().err


def test_one_bridge_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert device(["--ntb", f"name=a,socket={tmp_path / 'a'}"]) == 2
    assert "give --ntb twice" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        device([])
    assert "nothing to serve" in capsys.readouterr().err


SIZE = 3042


def _event(
    device: str,
    kind: Kind,
    length: int,
    *,
    what: What = What.OTHER,
    bar: int = 0,
    data: bytes = b"",
) -> Event:
    return Event(0, 0.0, device, kind, bar, what, 0, 0, length, data)


def _log() -> list[Event]:
    header = SIZE.to_bytes(4, "little")
    return [
        _event("b.ntb4", Kind.MMIO_WRITE, 4, bar=2, data=header),  # the peer's own, another frame
        _event("a.ntb4", Kind.MMIO_WRITE, 4, bar=2, data=header),
        _event("a.dma", Kind.DMA_READ, SIZE, what=What.COPY),
        _event("a.dma", Kind.DMA_WRITE, SIZE, what=What.COPY),
        _event("b.ntb4", Kind.DMA_WRITE, SIZE, what=What.WINDOW),
        _event("a.dma", Kind.IRQ, 0),
        _event("b.dma", Kind.DMA_WRITE, 64, what=What.COPY),
        _event("b.dma", Kind.DMA_WRITE, SIZE, what=What.COPY),
        _event("b.dma", Kind.IRQ, 0),
        _event("b.dma", Kind.IRQ, 0),
    ]


def test_a_packet_goes_from_the_sender_s_header_to_the_receiver_s_interrupt() -> None:
    assert packet_bounds(_log(), SIZE, "a", "b") == (1, 9)
    assert packet_bounds(_log()[2:], SIZE, "a", "b") == (0, 7)  # its header is not in the log


@pytest.mark.parametrize("left", [0, 3, 6, 8])
def test_a_packet_that_is_not_whole_is_none(left: int) -> None:
    assert packet_bounds(_log()[:left], SIZE, "a", "b") is None
