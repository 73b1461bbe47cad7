"""The bridge and its engine: throughput, a network beside virtio-net, latencies, trapped stores."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from functools import partial

from bluebridge.device.layout.ntb.models import GEN4
from bluebridge.device.server.options import BridgeOptions
from bluebridge.host_tools.campaigns.bench import doorbell_replies, programs
from bluebridge.host_tools.campaigns.bench.figures import Figure, at_least, at_most, plain
from bluebridge.host_tools.campaigns.bench.links import GuestLink, plug_nic
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.qemu_arguments import MESSAGE_TIMEOUT_MS
from bluebridge.host_tools.programs import ntb_clients as clients
from bluebridge.host_tools.programs.ntb_clients import (
    ADDRESSES,
    PERF,
    RATE,
    TOOL,
    TOOL_CLIENT,
    Client,
    Guests,
)
from bluebridge.host_tools.progress import Progress

BRIDGE = BridgeOptions(GEN4.name)
"""The bridge model whose doorbells `doorbell_replies` knows."""
ROUNDS = 5
TCP_ROUNDS = 3
TCP_SECONDS = 4
PINGS, GAMES = 2000, 5
STORED = 1 << 20
_NIC_PORT = 2  # the engine has port 1
_NETWORK = "10.10.0"
_STORE = f"""python3 -c '
import glob, os, time
(name,) = glob.glob("/sys/kernel/debug/ntb_tool/*/peer0/peer_mw0")
window = os.open(name, os.O_RDWR)
begin = time.perf_counter()
os.pwrite(window, bytes({STORED}), 0)
stored = time.perf_counter()
os.pread(window, 8, 0)
print(stored - begin, time.perf_counter() - begin)
'"""
"""Seconds until the guest has stored, and until a read behind the stores is answered."""


def figures(progress: Progress) -> list[Figure]:
    """Measure all figures of the bridge's section. Raises `LabError`."""
    with Pair(LabConfig(hca=False, bridge=BRIDGE, vfio=False, bus_log=False), progress) as pair:
        guests = Guests(pair, GEN4)
        pair.probe_bridges()
        progress("ntb_perf use_dma=1")
        found = [_perf(guests)]
        progress("stores through a window, and a read behind them")
        found += _stores(guests)
        progress("iperf3: ntb_netdev by processor and by DMA, virtio-net, in turn")
        found += _tcp(guests)
    with Pair(LabConfig(hca=False, bridge=BRIDGE, vfio=False), progress) as pair:
        guests = Guests(pair, GEN4)
        pair.probe_bridges()
        progress("ntb_pingpong")
        found.append(_doorbell_replies(guests))
    with Pair(LabConfig(hca=False, bridge=BRIDGE, bus_log=False), progress) as pair:
        progress("ping-pong of processes, by doorbell and by DMA")
        return found + _ping_pong(pair)


def _perf(guests: Guests) -> Figure:
    client = clients.perf("use_dma=1 total_order=28")
    clients.load_both(guests, client)
    rates = []
    for _ in range(ROUNDS):
        for guest in guests.machines:
            guests.run(guest, f"{PERF} echo 0 > run")
            said = guests.run(guest, f"{PERF} cat run")
            match = RATE.search(said)
            if match is None:
                raise LabError("ntb_perf printed no rate", transcript=said)
            rates.append(int(match[1]))
    clients.unload_both(guests, client)
    title = "`ntb_perf use_dma=1`, 256 MiB in pieces of 512 KiB"
    rate = statistics.median(rates) / 1000
    return at_least(plain("ntb_perf_dma", title, rate, "GB/s"), 1)


def _stores(guests: Guests) -> list[Figure]:
    """Stores of eight bytes by ntb_tool; a read comes back when all before it have arrived."""
    a, b = guests.machines
    clients.load_both(guests, TOOL_CLIENT)
    guests.run(a, f"{TOOL} echo 0 > peer0/mw_trans0; echo {STORED} > peer0/mw_trans0")
    guests.run(b, f"{TOOL} echo 0:{STORED} > peer0/peer_mw_trans0")
    posted, arrived = [], []
    for _ in range(ROUNDS):
        stored, read = map(float, guests.run(b, _STORE).split())
        posted.append(STORED / stored / 1e6)
        arrived.append(STORED / read / 1e6)
    clients.unload_both(guests, TOOL_CLIENT)
    rate = statistics.median(arrived)
    bound = rate * MESSAGE_TIMEOUT_MS / 1000
    return [
        plain("ntb_stores", "stores through a trapped window until all arrived", rate, "MB/s"),
        plain(
            "ntb_stores_posted",
            "the same as the guest sees it, which does not wait",
            statistics.median(posted),
            "MB/s",
        ),
        plain(
            "ntb_stores_bound",
            f"what may pile up before a read behind it takes {MESSAGE_TIMEOUT_MS // 1000} s",
            bound,
            "MB",
        ),
    ]


def _tcp(guests: Guests) -> list[Figure]:
    pair = guests.pair
    by_processor, by_dma = clients.netdev(""), clients.netdev("use_dma=1")
    clients.load_both(guests, by_dma)  # eth0 is its name, and stays so
    nic = _nic(pair)
    clients.unload_both(guests, by_dma)
    contests: list[tuple[str, str, Callable[[], float]]] = [
        ("cpu", "ntb_netdev, copies by the processor", partial(_over, guests, by_processor)),
        ("dma", "ntb_netdev `use_dma=1`", partial(_over, guests, by_dma)),
    ]
    for mtu in (1500, 65510):
        name = f"virtio-net over dgram, MTU {mtu}"
        contests.append((f"virtio_{mtu}", name, partial(_virtio, pair, nic, mtu)))
    rates: dict[str, list[float]] = {key: [] for key, _, _ in contests}
    for _ in range(TCP_ROUNDS):
        for key, _, measure in contests:
            rates[key].append(measure())
    found = [
        plain(f"ntb_tcp_{key}", f"iperf3, {title}", statistics.median(rates[key]), "MiB/s")
        for key, title, _ in contests
    ]
    ratio = found[1].value / found[0].value
    title = "iperf3 over ntb_netdev: DMA against the processor"
    return [*found, at_least(plain("ntb_tcp_ratio", title, ratio, "x"), 5)]


def _nic(pair: Pair) -> GuestLink:
    for number, machine in enumerate(pair.machines):
        name = plug_nic(pair, number, _NIC_PORT)
        machine.run(f"ip addr add {_NETWORK}.{number + 1}/24 dev {name} && ip link set {name} up")
    pair.b.run(f"until ping -c 1 -W 1 {_NETWORK}.1; do :; done")
    return GuestLink("virtio", name, "", f"{_NETWORK}.1")


def _virtio(pair: Pair, link: GuestLink, mtu: int) -> float:
    programs.set_mtu(pair, link, mtu)
    return programs.iperf3(pair, link, backwards=False, seconds=TCP_SECONDS)


def _over(guests: Guests, client: Client) -> float:
    """MiB/s over the bridge from b to a, the driver loaded for the purpose."""
    clients.load_both(guests, client)
    link = GuestLink("ntb", "eth0", "", ADDRESSES["a"])
    guests.until(guests.machines[1], f"ping -c 1 -W 1 {link.server} > /dev/null")
    rate = programs.iperf3(guests.pair, link, backwards=False, seconds=TCP_SECONDS)
    clients.unload_both(guests, client)
    return rate


def _doorbell_replies(guests: Guests) -> Figure:
    title = "the kernel's `ntb_pingpong delay_ms=0`, one side's ring to the other's, p50"
    return plain("ntb_rings_p50", title, doorbell_replies.half_us(guests), "us")


def _ping_pong(pair: Pair) -> list[Figure]:
    """The median of each over a few runs: other load on the host may distort one."""
    games = [game(pair) for _ in range(GAMES)]
    interrupt, wakeup, copied = (
        statistics.median(game[name]["p50"] for game in games)
        for name in ("interrupt", "doorbell", "dma")
    )
    title = "doorbell to interrupt in the peer, half of a ping-pong, p50"
    sleeping = "the same for a process that sleeps until then"
    other = "64 bytes through a window by DMA, half of a ping-pong, p50"
    return [
        at_most(plain("ntb_interrupt_p50", title, interrupt, "us"), 100),
        plain("ntb_doorbell_p50", sleeping, wakeup, "us"),
        at_most(plain("ntb_dma_p50", other, copied, "us"), 150),
    ]


def game(pair: Pair) -> dict[str, dict[str, float]]:
    """Return the microseconds of each ping-pong of processes: `p50` and others."""
    line = f"python3 -m bluebridge.guest.drivers.ntb pingpong --json --count {PINGS}"
    texts: dict[str, str] = {}

    def play(name: str) -> None:
        texts[name] = str(pair.machine(name).run(line, timeout=120).text)

    pair.together(partial(play, "a"), partial(play, "b"))
    found: dict[str, dict[str, float]] = json.loads(texts["a"])
    return found
