"""RTRS and RNBD by the kernel's modules over the HCA, and the commands that show them.

The steps on a mapped device are those of blktests' rnbd/001 and rnbd/002, and what its users do
besides: a device that the server closed, a server that starts anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.errors import CommandFailed, Reporter
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.running import wait_until
from bluebridge.host_tools.pytest_plugin.lab import Lab
from bluebridge.host_tools.rtrs.fio import Verification
from bluebridge.host_tools.rtrs.session import SESSION, Cut, Cutter, interrupt, mapped
from bluebridge.host_tools.rtrs.sides import CLIENT_ROOT, DISK, MAP, routes
from tests.campaigns import rtrs_matrix

_SERVED = f"/sys/devices/virtual/rnbd-server/ctl/devices/ram0/sessions/{SESSION}"
_PATTERN = (
    "tr '\\0' '\\132' < /dev/zero | dd of={device} bs=1M count=4 oflag=direct iflag=fullblock"
)
_SUM = "dd if={device} bs=1M count=4 iflag=direct 2>/dev/null | md5sum"


@pytest.fixture(scope="module")
def pair(lab: Lab) -> Iterator[Pair]:
    """Two guests with the kernel's modules, and two ports between them."""
    with lab.pair(rtrs=("kernel", "kernel"), options=ServerOptions(ports=2)) as made:
        yield made


def _file(device: str, name: str) -> str:
    return f"/sys/block/{device.removeprefix('/dev/')}/rnbd/{name}"


def _state(guest: Vm, device: str) -> str:
    return str(guest.run(f"cat {_file(device, 'state')}").text)


@pytest.mark.brief
def test_what_is_written_is_on_the_disk_of_the_server(pair: Pair) -> None:
    with mapped(pair) as session:
        pair.a.run(_PATTERN.format(device=session.device))
        written = pair.a.run(_SUM.format(device=session.device)).text
    assert pair.b.run(_SUM.format(device=DISK)).text == written
    assert "rtrs" not in pair.a.run(f"ls {CLIENT_ROOT} 2>&1", check=False).text.split()


def test_a_file_system_outlives_its_mapping(pair: Pair) -> None:
    with mapped(pair) as session:
        pair.a.run(f"mke2fs -q {session.device} && mount -t ext2 {session.device} /mnt")
        pair.a.run("head -c 3000000 /dev/urandom > /mnt/file && md5sum /mnt/file > /tmp/sum")
        pair.a.run("umount /mnt")
    with mapped(pair) as session:
        pair.a.run(f"mount -t ext2 {session.device} /mnt && md5sum -c /tmp/sum && umount /mnt")


@pytest.mark.parametrize("times", [2, pytest.param(100, marks=pytest.mark.long)])
def test_mapped_and_unmapped_over_and_over(pair: Pair, times: int) -> None:
    (route, *_) = routes(pair.config)
    for _ in range(times):
        with mapped(pair, [route]) as session:
            pair.a.run(f"dd if={session.device} of=/dev/null bs=4k count=1 iflag=direct")
            assert _state(pair.a, session.device) == "open"
            assert pair.b.run(f"cat {_SERVED}/access_mode").text == "rw"
    left = pair.a.run(f"ls -d /sys/block/rnbd* {CLIENT_ROOT}/* 2>/dev/null", check=False).text
    assert left == ""
    assert pair.b.run(f"ls -d {_SERVED} 2>/dev/null", check=False).text == ""


def test_a_device_is_mapped_once_until_the_server_closes_it(pair: Pair) -> None:
    """While it is open it is mapped neither again nor anew; then it is, and works."""
    with mapped(pair) as session:
        with pytest.raises(CommandFailed):
            pair.a.run(f"echo 1 > {_file(session.device, 'remap_device')}")
        with pytest.raises(CommandFailed):
            pair.a.run(f"echo 'sessname={SESSION} device_path={DISK}' > {MAP}")
        pair.a.run(f"dd if={session.device} of=/dev/null bs=4k count=1 iflag=direct")
        pair.b.run(f"echo 1 > {_SERVED}/force_close")
        with pytest.raises(CommandFailed):
            pair.a.run(f"dd if={session.device} of=/dev/null bs=4k count=1 iflag=direct")
    with mapped(pair) as session:
        pair.a.run(f"dd if={session.device} of=/dev/null bs=4k count=1 iflag=direct")


def test_a_server_that_starts_anew_gets_its_client_back(pair: Pair) -> None:
    with mapped(pair) as session:
        pair.b.run("rmmod rnbd_server rtrs_server")
        pair.a.run(wait_until(f"grep -qx closed {_file(session.device, 'state')}"))
        pair.b.run("modprobe rnbd-server")
        for route in session.routes:
            file = f"{CLIENT_ROOT}/{SESSION}/paths/{route.name}/reconnect"
            pair.a.run(wait_until(f"echo 1 > {file}"))
        pair.a.run(wait_until(f"grep -qx open {_file(session.device, 'state')}"))
        pair.a.run(f"dd if={session.device} of=/dev/null bs=4k count=1 iflag=direct")


def test_paths_are_removed_and_added_under_load(pair: Pair) -> None:
    with mapped(pair) as session:
        _, second = session.routes
        paths = f"{CLIENT_ROOT}/{SESSION}/paths"
        fio = Verification(pair.a, session.device, 6)
        pair.a.run(f"echo 1 > {paths}/{second.name}/remove_path")
        assert len(session.client.statistics()) == 1
        # The server may still be taking the old path apart: EEXIST, "Path with same addr exists".
        add = f"echo {second.name} > {CLIENT_ROOT}/{SESSION}/add_path"
        pair.a.run(wait_until(f"{add} 2> /dev/null"), timeout=60)
        assert [path.connected for path in session.client.statistics()] == [True, True]
        assert fio.finish().ok


@pytest.mark.brief("silent")
@pytest.mark.parametrize("how", [pytest.param(Cut.LOUD, marks=pytest.mark.long), Cut.SILENT])
def test_a_cut_path_fails_over(pair: Pair, how: Cut) -> None:
    with mapped(pair) as session:
        fio = Verification(pair.a, session.device, 20)
        cutter = Cutter(pair.server.tell, how)
        say = Reporter(quiet=True)
        assert interrupt(session, cutter, session.routes[-1], 12, float("inf"), say)
        assert fio.finish().ok
        first, second = session.client.statistics()
        assert first.failovers > 0 and second.reconnected == 1


def test_two_hcas_in_each_guest(lab: Lab) -> None:
    with lab.pair(rtrs=("kernel", "kernel"), hcas=2) as pair, mapped(pair) as session:
        assert [route.port for route in session.routes] == ["a/1", "a.1/1"]
        used = pair.a.run(f"cat {CLIENT_ROOT}/{SESSION}/paths/*/hca_name").text.split()
        assert used == ["mlx4_0", "mlx4_1"]
        fio = Verification(pair.a, session.device, 18)
        cutter = Cutter(pair.server.tell, Cut.SILENT)
        assert interrupt(session, cutter, session.routes[-1], 12, 0.0, Reporter(quiet=True))
        assert fio.finish().ok


@pytest.mark.parametrize(
    "pairings",
    [
        ("python:kernel", "kernel:python"),
        pytest.param(("kernel:kernel", "python:python"), marks=pytest.mark.long),
    ],
)
def test_a_short_matrix(pairings: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for each in pairings for word in ("--sides", each)]
    status = rtrs_matrix.main(["--minutes", "0.25", "--period", "15", *words, "--quiet"])
    output = capsys.readouterr().out
    assert status == 0, output
    rows = [line for line in output.splitlines() if re.match(r"\| (kernel|python) ", line)]
    assert len(rows) == len(pairings)
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        # Whether the path is given up before its link is back depends on how busy the machine is.
        assert (cells[3], cells[5:7]) == ("1", ["0", "0"]), row
        assert int(cells[8]) >= int(cells[4]), row
