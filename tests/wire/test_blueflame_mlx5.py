"""BlueFlame of a ConnectX-5 over the socket: the guest's driver stores, the log tells what went."""

from __future__ import annotations

from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx5.init_segment import FIRST_UAR, SEND_DOORBELL, UAR_BYTES
from bluebridge.guest.drivers.common.health import HcaError
from bluebridge.guest.providers import open_device
from bluebridge.guest.verbs import SendWr, WcStatus, WrOpcode
from bluebridge.host_tools.analyzer.analysis import PostedBy, Role, Transfer, transfers
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.server import functions
from tests.models.verbs.player import Player
from tests.wire.conftest import StartServer

INLINE = 220
SIZES = (4, 28, 29, 92, 93, 220)
SECOND_REGISTER = SEND_DOORBELL + 512


def posts(start: StartServer, folder: Path, use: str) -> list[Transfer]:
    """The work requests of writes of these sizes, then of one whose data are not inline."""
    words = ("--card", "connectx5", "--blueflame", "on", "--log", str(folder / "log"))
    server = start("device", *functions(folder), *words)
    buses = [SocketBus(folder / name) for name in "ab"]
    with open_device(buses[0], blueflame=use) as first, open_device(buses[1]) as second:
        a, b = Player(first, inline=INLINE), Player(second)
        a.connect(b)
        b.connect(a)
        for size in (*SIZES, 0):
            data = bytes(range(size))
            request = SendWr(1, WrOpcode.RDMA_WRITE, inline_data=data)
            if not size:
                request = SendWr(1, WrOpcode.RDMA_WRITE, [a.sge(0, 64)])
            request.remote_addr, request.rkey = b.address, b.mr.rkey
            a.qp.post_send(request)
            a.expect(WcStatus.SUCCESS)
            assert bytes(b.view[:size]) == data
    for bus in buses:
        bus.close()
    assert server.terminate() == 0
    return list(transfers(folder / "log"))


def test_entries_are_stored_line_by_line_and_not_fetched(
    start_server: StartServer, tmp_path: Path
) -> None:
    *stored, rung = posts(start_server, tmp_path, "on")
    # 36 bytes of control segment, address and length come before the data.
    for each, lines in zip(stored, (1, 1, 2, 2, 3, 4), strict=True):
        assert each.posted_by is PostedBy.BLUEFLAME, each.notes
        assert [(one.length, one.stores) for one in each.of(Role.BLUEFLAME)] == [(64, 8)] * lines
        assert not each.count(Role.WQE, Role.DOORBELL_RECORD, Role.DOORBELL)
    places = [each.of(Role.BLUEFLAME)[0].address % UAR_BYTES for each in stored]
    assert places == [SECOND_REGISTER, SECOND_REGISTER + 256] * 3
    assert rung.posted_by is PostedBy.DOORBELL
    assert [rung.count(role) for role in (Role.DOORBELL, Role.WQE)] == [1, 1]
    entries = [each for each in LogReader(tmp_path / "log") if each.kind is Kind.BLUEFLAME]
    assert len(entries) == len(SIZES)
    assert decode(entries[0]).startswith(f"BlueFlame page {FIRST_UAR}: WQE qpn=")


def test_the_study_s_old_size_rule_rings_for_the_largest(
    start_server: StartServer, tmp_path: Path
) -> None:
    """An entry of 256 bytes: libmlx5 would store it, so the device waits a little."""
    *stored, largest, _ = posts(start_server, tmp_path, "old-size")
    assert {each.posted_by for each in stored} == {PostedBy.BLUEFLAME}
    assert largest.posted_by is PostedBy.DOORBELL


def test_an_adapter_without_it_is_refused(start_server: StartServer, tmp_path: Path) -> None:
    start_server("device", *functions(tmp_path), "--card", "connectx5")
    bus = SocketBus(tmp_path / "a")
    with pytest.raises(HcaError, match="start it with --blueflame on"):
        open_device(bus, blueflame="on")
    bus.close()
