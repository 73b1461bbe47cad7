"""The server survives its guests: whatever they held is gone with them, and nothing else is."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.guest.drivers.hca.context import Context, open_hca
from bluebridge.guest.verbs import QpState, WcStatus, WrOpcode
from bluebridge.host_tools.vfio_user.bus import SocketBus
from bluebridge.host_tools.vfio_user.client import Client
from bluebridge.host_tools.vfio_user.connection import CONFIG
from tests.models.players import Player, connected, driven
from tests.models.server import ROOT, ServerProcess, devices
from tests.models.until import until
from tests.wire.guest_process import MAC, End, connect, writes

DEATHS = 10
OK = WcStatus.SUCCESS
GREETING = struct.pack("<HH", 0, 1) + b"{}\0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("survival")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    """A server of its own: its memory is measured."""
    with devices(folder) as server:
        yield server


@pytest.fixture
def peer(server: ServerProcess, folder: Path) -> Iterator[Context]:
    """The guest that lives on."""
    with driven(folder, "b") as (ctx,):
        yield ctx


def power_on_state(path: Path) -> tuple[bytes, bytes]:
    """Config space and the registers of BAR0 as a client finds them that just connected."""
    with Client(path) as client:
        config = client.read(CONFIG, 0, 256)
        registers = [client.read(0, bar0.HCR_BASE + offset, 4) for offset in range(0, 0x1C, 4)]
        registers += [client.read(0, at, 4) for at in (bar0.OWNERSHIP_OFFSET, bar0.CATAS_OFFSET)]
    return config, b"".join(registers)


def short_life(path: Path, target: Player, deaf: Player, rounds: int) -> None:
    """A guest process on HCA `path` works with `target`, sends to `deaf` and is killed.

    Before that `target` writes to it `rounds` times; with none of them the guest dies in the
    middle of a message to the server. Afterwards `target` has found out.
    """
    words = [] if rounds else ["half"]
    guest = subprocess.Popen(
        [sys.executable, "-m", "tests.wire.guest_process", path, *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert guest.stdin is not None and guest.stdout is not None
        theirs = [End(**json.loads(guest.stdout.readline())) for _ in range(2)]
        connect(target, theirs[0])
        connect(deaf, theirs[1])
        guest.stdin.write(End.of(target).text() + End.of(deaf).text())
        guest.stdin.flush()
        assert guest.stdout.readline() == "busy\n"
        for _ in range(rounds):
            target.qp.post_send([writes(target, theirs[0])] * 4)
            assert {wc.status for wc in target.wait(4)} == {OK}
    finally:
        guest.kill()
        guest.communicate()
    # Its last words may have been answered; sooner or later nobody answers any more.
    status = OK
    while status is OK:
        target.qp.post_send(writes(target, theirs[0]))
        status = target.wait()[-1].status
    assert status is WcStatus.RETRY_EXC_ERR


def resident_bytes(server: ServerProcess) -> int:
    """Anonymous memory of the server: guest memory is not counted."""
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def one_life(path: Path, peer: Context, rounds: int) -> None:
    """A guest comes, is as busy as can be, and is killed; its peer sees what the wire shows."""
    target, deaf = Player(peer), Player(peer)
    short_life(path, target, deaf, rounds)
    target.wait_state(QpState.ERR)
    assert deaf.qp.query_state() is QpState.RTS  # it has asked for nothing, so it hears nothing
    assert peer.query_port().active, "the fabric is a switch: the peer's link stays up"
    for player in (target, deaf):
        player.qp.destroy()
        player.mr.close()
        player.cq.destroy()
        player.channel.close()
        player.memory.free()
        player.pd.close()


def test_a_killed_guest_leaves_a_device_as_after_power_on(
    server: ServerProcess, folder: Path, peer: Context
) -> None:
    """Ten times in a row, with memory and descriptors of the server as they were."""
    fresh = power_on_state(folder / "a")
    for number in range(DEATHS):
        one_life(folder / "a", peer, rounds=number % 5)
        assert power_on_state(folder / "a") == fresh
        with Client(folder / "a") as idle:
            assert idle.alive()
            if number == 4:  # what is allocated once has been allocated
                memory, files = resident_bytes(server), server.open_files()
            elif number > 4:
                assert server.has_open(files)
    assert resident_bytes(server) - memory < 1 << 20


def test_the_next_guest_works_with_the_same_peer(
    server: ServerProcess, folder: Path, peer: Context
) -> None:
    one_life(folder / "a", peer, rounds=1)
    with driven(folder, "a") as (again,):
        assert again.ethernet_port.mac != MAC
        a, b = connected(again, peer)
        for player, other in ((a, b), (b, a)):
            player.send(WrOpcode.RDMA_WRITE, [player.sge()], other)
            player.expect(OK)


def test_a_storm_of_callers_leaves_the_guest_alone(
    server: ServerProcess, folder: Path, peer: Context
) -> None:
    """Hundreds who knock, some of whom introduce themselves, while the device is at work."""
    bus = SocketBus(folder / "a")
    with open_hca(bus) as ctx, ExitStack() as stack:
        a, b = connected(ctx, peer)
        files = server.open_files()
        for number in range(400):
            try:
                caller = stack.enter_context(Client(folder / "a", negotiate=False, timeout=0.01))
            except BlockingIOError:
                continue  # the queue of callers is full: turned away by the kernel
            if number % 2:
                caller.send(caller.pack(VfioUserCommand.VERSION, GREETING))
            if number % 8 == 0:
                a.send(WrOpcode.RDMA_WRITE, [a.sge()], b)
                a.expect(OK)
        a.send(WrOpcode.RDMA_WRITE, [a.sge()], b)
        a.expect(OK)
        stack.pop_all().close()
        bus.settle()
        until(lambda: server.open_files() <= files + 1)  # who has said nothing yet
    bus.close()


def test_a_guest_that_comes_and_goes_at_once(server: ServerProcess, folder: Path) -> None:
    """Hot-unplug and plug as fast as it goes, with and without a bring-up in between."""
    files = server.open_files()
    for number in range(100):
        if number % 20:
            with socket.socket(socket.AF_UNIX) as caller:
                caller.connect(str(folder / "a"))
            continue
        bus = SocketBus(folder / "a")
        open_hca(bus)  # left open: unplugged while in use
        bus.close()
    with Client(folder / "a") as last:
        assert last.alive()
    until(lambda: server.open_files() <= files)  # callers that left are noticed in turn
