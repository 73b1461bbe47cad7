"""The control socket of the device server, beside a driver that uses the device."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bluebridge.device.__main__ import main
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.eqe import PORT_DOWN, EventType
from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.lab import hardware_control
from bluebridge.host_tools.vfio_user.bus import WireBus
from tests.wire.conftest import StartServer


def _arguments(folder: Path) -> list[str]:
    return ["--hca", f"name=a,socket={folder / 'a'}", "--control", str(folder / "control")]


def test_a_driver_sees_its_cable_pulled_and_its_adapter_fail(
    start_server: StartServer, tmp_path: Path
) -> None:
    start_server("bluebridge.device", *_arguments(tmp_path))
    control = tmp_path / "control"
    bus = WireBus(tmp_path / "a")
    ctx = open_hca(bus)  # never closed: its device fails
    assert hardware_control.tell(control, "status") == ["a/1 working cable in link up"]
    hardware_control.tell(control, "link a down")
    seen: list[tuple[int, int]] = []
    while not seen or seen[-1] != (EventType.PORT_CHANGE, PORT_DOWN):
        event = ctx.async_events.get_event(5)
        assert event is not None, seen
        seen.append((event.type, event.subtype))
    assert not ctx.query_port().active
    hardware_control.tell(control, "link a up")
    hardware_control.tell(control, "fault a injected by a test")
    assert bus.read32(0, bar0.CATAS_OFFSET) == bar0.CATAS_CODE_INJECTED
    bus.write32(0, bar0.RESET_OFFSET, bar0.RESET_VALUE)
    assert not bus.read32(0, bar0.CATAS_OFFSET)
    with open_hca(bus) as again:
        assert again.query_port().active
    bus.close()


def test_bad_lines_and_rude_clients(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("bluebridge.device", *_arguments(tmp_path))
    control = tmp_path / "control"
    for line in ("link x up", "frob", ""):
        with pytest.raises(UsageError):
            hardware_control.tell(control, line)
    before = server.open_files()
    for data in (b"", b"x" * 10000, b"status\nstatus\nsta", b"\xff\xfe\n"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(control))
            client.sendall(data)
    assert hardware_control.tell(control, "status") == ["a/1 working cable in link down"]
    assert server.open_files() <= before + 1
    server.terminate()
    assert not control.exists()
    with pytest.raises(LabError, match="does not answer"):
        hardware_control.tell(control, "status")


def test_a_place_that_is_none_is_one_line(tmp_path: Path) -> None:
    words = ["--hca", f"name=a,socket={tmp_path / 'a'}", "--control", str(tmp_path / "no" / "x")]
    assert main(words) == 2
    assert not (tmp_path / "a").exists()
