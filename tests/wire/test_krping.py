"""krping between two HCAs: every memory mode, the benchmarks, several threads, what goes wrong."""

from __future__ import annotations

from bluebridge.guest.drivers.hca.context import Context
from bluebridge.host_tools.vfio_user.bus import WireBus
from tests.models.verbs.krping_contract import KrpingContract
from tests.models.verbs.krping_pair import SERVER_IP, Side, both, start, until

ADDRESS = f"addr={SERVER_IP},port=9999"


def free_memory(side: Side) -> int:
    """Bytes of DMA memory that a side's HCA has free."""
    assert isinstance(side.host.device, Context)
    bus = side.host.device.adapter.bus
    assert isinstance(bus, WireBus)
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


def test_unreachable_address(sides: tuple[Side, Side]) -> None:
    """Nobody answers ARP."""
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
