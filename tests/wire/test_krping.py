"""krping between two HCAs: memory modes, benchmarks, threads, addresses, its control file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.layout.net.roce import GRH
from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.protocols.krping import sides as krping_sides
from bluebridge.guest.protocols.krping.control import KrpingCommands
from bluebridge.host_tools.analyzer import log_command as cli
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.capture_reader import parse, read_file
from tests.models.fuse_peer import NAME, Kernel, connected
from tests.models.server import devices
from tests.models.until import until
from tests.models.verbs.krping_contract import SERVER_IP, KrpingContract, Side, both, start
from tests.wire.krping_pair import opened

ADDRESS = f"addr={SERVER_IP},port=9999"


def free_memory(side: Side) -> int:
    """Bytes of DMA memory that a side's HCA has free."""
    assert isinstance(side.host.device, Context)
    bus = side.host.device.adapter.bus
    assert isinstance(bus, SocketBus)
    return bus.available()


class TestHca(KrpingContract):
    """Two HCAs, on the fixture `sides` of this folder."""

    device_name = "mlx4_0"


def test_the_log_reads_like_the_modules(sides: tuple[Side, Side]) -> None:
    """The steps of an iteration in the order the module logs them."""
    for side in sides:
        side.host.log.debugging = True
    for run in both(sides, "count=1,mem_mode=reg"):
        assert run.result().ok
    server = [line.partition("] ")[2] for line in sides[0].text.splitlines()]
    steps = [
        "recv completion",
        "server received sink adv",
        "server posted rdma read req",
        "rdma read completion",
        "server received read complete",
        "server posted go ahead",
        "send completion",
        "recv completion",
        "server received sink adv",
        "rdma write completion",
        "server rdma write complete",
        "server posted go ahead",
        "krping: DISCONNECT EVENT...",
        "krping: wait for RDMA_READ_ADV state 10",
    ]
    place = -1
    for step in steps:
        place = server.index(step, place + 1)
    made, freed = (line.rpartition(" ") for line in server if "called on" in line)
    assert made[0] == "krping: krping_setup_buffers called on cb"
    assert freed[0] == "krping_free_buffers called on cb" and freed[2] == made[2]


def test_several_threads_share_an_hca(sides: tuple[Side, Side]) -> None:
    """Four connections at once, in both memory modes, with a line of statistics each."""
    modes = ["mem_mode=dma", "mem_mode=reg", "mem_mode=reg,server_inv", "size=3000"]
    runs = [both(sides, f"validate,{mode}", 7000 + n) for n, mode in enumerate(modes)]
    until(lambda: all(c.running and c.running[0].iterations > 20 for _, c in runs))
    lines = [line.split() for line in sides[0].host.statistics().splitlines()]
    assert [line[0] for line in lines] == [f"{n}-mlx4_0" for n in range(1, 5)]
    assert all(len(line) == 9 and int(line[8]) >= 20 for line in lines)
    for server, client in runs:
        client.running[0].cancel()
        asked, served = client.result(), server.result()
        assert (served.ok, asked.ok) == (True, True), (served.error, asked.error)
        assert served.validated == asked.validated > 20
    assert sides[0].host.statistics() == ""


def test_runs_follow_each_other(sides: tuple[Side, Side]) -> None:
    """Nothing is used up: the same port again, memory back where it was."""
    free = [free_memory(side) for side in sides]
    for _ in range(5):
        for run in both(sides, "count=3,validate,mem_mode=reg"):
            assert run.result().ok
    assert free == [free_memory(side) for side in sides]


def test_both_ends_on_one_hca(sides: tuple[Side, Side]) -> None:
    """Loopback: a client connects to its own HCA."""
    runs = both((sides[0], sides[0]), "count=10,validate")
    assert [run.result().validated for run in runs] == [10, 10]


def test_nobody_listens(sides: tuple[Side, Side]) -> None:
    """A REJ with reason 8 becomes one clear line."""
    result = start(sides[1], f"client,{ADDRESS},count=1").result()
    assert not result.ok
    assert result.error.startswith(f"nobody listens on port 9999 at {SERVER_IP}:")
    assert "krping: cma event 8, error 8" in sides[1].text


def test_unreachable_address(sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers ARP."""
    monkeypatch.setattr(krping_sides, "RESOLVE_SECONDS", 0.5)
    result = start(sides[1], "client,addr=192.168.69.200,port=9999,count=1").result()
    assert not result.ok
    assert result.error.startswith("nobody answers at 192.168.69.200")
    assert "krping: cma event 1, error -110" in sides[1].text


def test_address_beyond_the_network(sides: tuple[Side, Side]) -> None:
    """There is no router."""
    result = start(sides[1], "client,addr=10.0.0.1,port=9999,count=1").result()
    assert not result.ok and "no router" in result.error


def test_foreign_address_to_bind(sides: tuple[Side, Side]) -> None:
    """A server binds its own address only."""
    result = start(sides[0], "server,addr=192.168.69.5,port=9999").result()
    assert not result.ok and result.error.startswith("192.168.69.5 is not an address of this HCA")


def test_port_taken(sides: tuple[Side, Side]) -> None:
    """A second listener on a port is refused, the first one goes on."""
    first = start(sides[0], "server,addr=0.0.0.0,port=9999,count=2")
    second = start(sides[0], f"server,{ADDRESS}").result()
    assert not second.ok and second.error == "port 9999 is taken by another listener"
    assert start(sides[1], f"client,{ADDRESS},count=2").result().ok
    assert first.result().ok


def test_sizes_that_differ(sides: tuple[Side, Side]) -> None:
    """The server does not read past its buffer; both sides end."""
    server = start(sides[0], f"server,{ADDRESS},size=64")
    client = start(sides[1], f"client,{ADDRESS},count=2,size=128")
    assert "give both sides the same" in server.result().error
    assert not client.result().ok


def test_wrong_commands_start_nothing(sides: tuple[Side, Side]) -> None:
    """The reason is logged in one line."""
    result = start(sides[0], "server,client,port=1").result()
    assert (result.ok, result.error) == (False, "must be either client or server")
    assert "krping: must be either client or server" in sides[0].text


SERVER_IP6, CLIENT_IP6 = "fd00:69::127", "fd00:69::128"
TOS = 104


def test_a_connection_between_ipv6_addresses_in_a_traffic_class(tmp_path: Path) -> None:
    """Neighbours are found by solicitation; all packets of the connection are of its class."""
    with (
        devices(tmp_path),
        opened(tmp_path / "a", SERVER_IP6) as a,
        opened(tmp_path / "b", CLIENT_IP6) as b,
    ):
        address = f"addr6={SERVER_IP6},port=9999,count=20,validate"
        served = start(a, f"server,{address}")
        asked = start(b, f"client,{address},tos={TOS}").result()
        assert asked.ok and served.result().ok, (asked.error, served.result().error)
        assert served.result().stats["read_bytes"] == 20 * 64
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.main(parser.parse_args([str(tmp_path / "log"), "--pcap", str(tmp_path / "f")])) == 0
    frames = read_file(tmp_path / "f")
    assert [frame.data[54] for frame in frames if frame.data[12:14] == b"\x86\xdd"][-2:] == [
        135,
        136,
    ]
    packets = [(frame, packet) for frame in frames if (packet := parse(frame)) is not None]
    assert len(packets) > 100
    assert {GRH.get(frame.data, "traffic_class", 14) for frame, _ in packets} == {TOS}
    assert all(packet.whole for _, packet in packets)


def test_fast_registrations_one_after_the_other(sides: tuple[Side, Side]) -> None:
    """The server is one without a test, which sees a client that comes and goes."""
    address = f"addr={SERVER_IP},port=9999"
    served = start(sides[0], f"server,{address}")
    asked = start(sides[1], f"client,{address},fr,count=500,size=20000").result()
    assert (asked.ok, asked.iterations) == (True, 500), asked.error
    assert served.result().ok and served.result().iterations == 0
    assert "fr_test: done!" in sides[1].text


def test_fast_registrations_until_the_run_is_ended(sides: tuple[Side, Side]) -> None:
    """Without `count` they go on until somebody ends them."""
    address = f"addr={SERVER_IP},port=9999"
    served = start(sides[0], f"server,{address}")
    asked = start(sides[1], f"client,{address},fr")
    while not (asked.running and asked.running[0].iterations):
        pass
    asked.running[0].cancel()
    assert asked.result().cancelled and served.result().iterations == 0


Files = tuple[Side, Kernel, Kernel]


@pytest.fixture
def files(sides: tuple[Side, Side]) -> Iterator[Files]:
    """The server side, and the kernel in front of a control file for each side."""
    a, b = sides
    with connected(KrpingCommands(a.host)) as first, connected(KrpingCommands(b.host)) as second:
        yield a, first, second


def reads(kernel: Kernel) -> int:
    """RDMA READs of the one thread: the last of the nine columns."""
    columns = kernel.read(NAME).split()
    return int(columns[8]) if len(columns) == 9 and columns[0] == "1-mlx4_0" else 0


def test_commands_statistics_and_ctrl_c(files: Files) -> None:
    """A finite run ends by itself; an endless one is seen in the statistics and interrupted."""
    side, first, second = files
    for options in ("count=5,validate", "mem_mode=reg"):
        listening = side.output.listening
        server = first.begin_write(f"server,{ADDRESS},{options}")
        until(lambda before=listening: side.output.listening > before)  # type: ignore[misc]
        client = second.begin_write(f"client,{ADDRESS},{options}")
        if "count" not in options:
            until(lambda: reads(first) > 5)
            columns = second.read(NAME).split()
            assert len(columns) == 9 and columns[0] == "1-mlx4_0"
            second.interrupt(client)
            with pytest.raises(InterruptedError):
                client.wait()
        else:
            client.wait()
        server.wait()
    assert first.read(NAME) == second.read(NAME) == ""


def test_a_client_that_fails_is_told(files: Files) -> None:
    """Nobody listens: EIO."""
    _, _, second = files
    with pytest.raises(OSError, match="Input/output error"):
        second.write(f"client,{ADDRESS},count=1")


def test_wrong_commands_leave_a_line(files: Files) -> None:
    """EINVAL for the writer, the reason in the log."""
    side, first, _ = files
    with pytest.raises(OSError, match="Invalid argument"):
        first.write("server,port=1,fast")
    assert "krping: proc write |server,port=1,fast|" in side.text
    assert "krping: unknown option fast" in side.text
