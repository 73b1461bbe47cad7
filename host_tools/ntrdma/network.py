"""`bluebridge ntrdma ethernet`: measures interfaces over NTRDMA and the kernel's ntb_netdev."""

from __future__ import annotations

import re
import shlex
import signal
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.guest.protocols.ntrdma.back_ends import NTB_DMA
from bluebridge.host_tools.agent.guest_command import Command
from bluebridge.host_tools.errors import LabError, Progress
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.lab.root_ports import BRIDGE, ENGINE
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs import ntb_clients as clients
from bluebridge.host_tools.programs.ntb_clients import Guests
from bluebridge.host_tools.programs.perftest import tcp_rate

ADDRESSES = ("10.9.2.1", "10.9.2.2")
PROGRAM = ("python3", "-m", "bluebridge.guest.protocols.ntrdma", "ethernet")
_PROGRAM_SECONDS = 3600.0
_START_SECONDS = 60
_COUNTERS = re.compile(
    r"sent (?P<sent>\d+) frames \(\d+ bytes\) in (?P<bursts>\d+) bursts, (?P<unsent>\d+) dropped; "
    r"received (?P<received>\d+) \(\d+ bytes\), (?P<lost>\d+) dropped"
)


@dataclass
class Interfaces:
    """The interfaces of both guests; their counters are known after the `with` block."""

    counters: list[str] = field(default_factory=list)
    """The last line of output of each interface's program, guest a's first."""

    def numbers(self, guest: int) -> dict[str, int]:
        """Return the frames `sent` in `bursts`, `received`, `unsent` and `lost` of guest 0 or 1.

        Raises `LabError` when the program printed no counters.
        """
        found = _COUNTERS.search(self.counters[guest])
        if found is None:
            raise LabError(f"no counters: {self.counters[guest]}")
        return {name: int(text) for name, text in found.groupdict().items()}


@contextmanager
def interfaces(pair: Pair, back_end: str, mtu: int) -> Iterator[Interfaces]:
    """Make interfaces with `ADDRESSES` that reach each other; remove them at the end of the block.

    Raises `LabError`.
    """
    both = Interfaces()
    programs = []
    for machine, address, serves in zip(pair.machines, ADDRESSES, (True, False), strict=True):
        word = ntrdma.word(back_end, serves=serves)
        line = [*PROGRAM, "--address", f"{address}/24", "--backend", word, "--mtu", str(mtu)]
        programs.append(machine.agent.start(line, _PROGRAM_SECONDS))
    try:
        _meet(pair, programs)
        yield both
    except BaseException:
        for program in programs:
            program.kill()
        raise
    both.counters += [_end(program) for program in programs]


def _meet(pair: Pair, programs: list[Command]) -> None:
    """Wait until one reaches the other; programs that have failed say why."""
    ping = f"until ping -c 1 -W 1 {ADDRESSES[0]} > /dev/null 2>&1; do sleep 0.1; done"
    line = shlex.join(["timeout", str(_START_SECONDS), "sh", "-c", ping])
    if pair.b.run(line, timeout=2 * _START_SECONDS, check=False).status == 0:
        return
    for program in programs:
        program.signal(signal.SIGTERM)
    for program in programs:
        done = program.wait()
        if done.status:
            raise program.failed(done)
    raise LabError("the interfaces over NTRDMA do not reach each other", f"read {pair.logs}")


def _end(program: Command) -> str:
    program.signal(signal.SIGTERM)
    done = program.wait()
    if done.status:
        raise program.failed(done)
    return done.text.splitlines()[-1]


ENGINE_DRIVER, VFIO = "ioatdma", "vfio-pci"
_SECONDS = 120.0


def give_to_kernel(pair: Pair, model: BridgeModel) -> None:
    """Bind engines and bridges to the kernel's drivers; return when they are ready for clients.

    Raises `LabError`.
    """

    def give(machine: Vm) -> None:
        driver = model.kernel_driver
        machine.run(f"modprobe {ENGINE_DRIVER} && modprobe {driver}", timeout=_SECONDS)
        machine.bind(ENGINE, ENGINE_DRIVER)
        machine.bind(BRIDGE, driver)

    pair.together(*(partial(give, machine) for machine in pair.machines))
    pair.probe_bridges()


def give_to_python(pair: Pair) -> None:
    """Bind engines and bridges to vfio-pci; the kernel's clients must be unloaded.

    Raises `LabError`.
    """

    def give(machine: Vm) -> None:
        machine.bind(BRIDGE, VFIO)
        machine.bind(ENGINE, VFIO)

    pair.together(*(partial(give, machine) for machine in pair.machines))


PINGS = 200
SECONDS = 4
MTUS = (1500, 65510)
"""The MTUs that are measured: Ethernet's usual one, and ntb_netdev's own."""
_TIME = re.compile(r"time=([\d.]+) ms")
_LIMIT = 120.0


@dataclass(frozen=True)
class Measured:
    """The figures of one network over the bridge, or the medians of several measurements."""

    way: str
    mtu: int
    ping_us: float
    """The median time of a ping's answer in microseconds."""
    ping_least_us: float
    to_a: float
    """The rate of iperf3 from guest b to guest a in MiB/s."""
    to_b: float
    frames_per_burst: float = 0.0
    """The frames for each interrupt of both sides together; 0 for ntb_netdev."""


@dataclass(frozen=True)
class Plan:
    """The plan of a comparison: `back_end` of NTRDMA; ntb_netdev copies in the same way."""

    model: BridgeModel
    back_end: str = NTB_DMA
    mtus: Sequence[int] = MTUS
    seconds: int = SECONDS
    rounds: int = 1


def compare(pair: Pair, plan: Plan, progress: Progress) -> list[Measured]:
    """Measure NTRDMA and ntb_netdev in turn over the bridge of a pair; return the medians.

    The pair's devices must be bound to vfio-pci. Raises `LabError`.
    """
    found: dict[tuple[str, int], list[Measured]] = {}
    ways = {f"NTRDMA, {plan.back_end}": over_ntrdma, "ntb_netdev": over_netdev}
    for number in range(plan.rounds):
        for way, measure in ways.items():
            if measure is over_netdev:
                give_to_kernel(pair, plan.model)
            elif number:
                give_to_python(pair)
            for mtu in plan.mtus:
                progress(f"{way}, MTU {mtu}")
                found.setdefault((way, mtu), []).append(measure(pair, plan, mtu))
    rows = [_medians(each) for each in found.values()]
    return sorted(rows, key=lambda row: row.mtu)


def over_ntrdma(pair: Pair, plan: Plan, mtu: int) -> Measured:
    """Measure the network over NTRDMA, whose interfaces are made and removed. Raises `LabError`."""
    with interfaces(pair, plan.back_end, mtu) as both:
        figures = _measure(pair, ADDRESSES[0], plan.seconds)
    counted = [both.numbers(guest) for guest in range(2)]
    bursts = sum(each["bursts"] for each in counted)
    frames = sum(each["sent"] for each in counted)
    return Measured(f"NTRDMA, {plan.back_end}", mtu, *figures, frames / max(1, bursts))


def over_netdev(pair: Pair, plan: Plan, mtu: int) -> Measured:
    """Measure ntb_netdev, which is loaded and unloaded. Raises `LabError`."""
    guests = Guests(pair, plan.model)
    client = clients.netdev("use_dma=1" if plan.back_end.startswith(NTB_DMA) else "")
    clients.load_both(guests, client)
    server = clients.ADDRESSES["a"]
    guests.both(f"ip link set eth0 mtu {mtu}")
    clients.ready(guests, client)
    guests.until(pair.b, f"ping -c 1 -W 1 {server} > /dev/null")
    figures = _measure(pair, server, plan.seconds)
    clients.unload_both(guests, client)
    return Measured(client.name, mtu, *figures)


def _measure(pair: Pair, server: str, seconds: int) -> tuple[float, float, float, float]:
    times = round_trips(pair.b, server)
    rates = [
        tcp_rate(pair, server, backwards=backwards, seconds=seconds) for backwards in (False, True)
    ]
    return statistics.median(times), min(times), rates[0], rates[1]


def round_trips(guest: Vm, address: str) -> list[float]:
    """Return the microseconds of each answer to `PINGS` successive requests. Raises `LabError`."""
    said = guest.run(f"ping -c {PINGS} -i 0.002 {address}", timeout=_LIMIT).text
    times = [1000 * float(text) for text in _TIME.findall(said)]
    if not times:
        raise LabError(f"guest {guest.name}: {address} does not answer", transcript=said)
    return times


def _medians(several: list[Measured]) -> Measured:
    first = asdict(several[0])
    numbers = {
        name: statistics.median(getattr(each, name) for each in several)
        for name, value in first.items()
        if isinstance(value, float)
    }
    return Measured(**(first | numbers))


def table(rows: Sequence[Measured]) -> str:
    """Return the results as a table of text."""
    heads = ("", "MTU", "ping p50", "least", "b to a", "a to b", "frames in a burst")
    cells = [
        (
            row.way,
            f"{row.mtu}",
            f"{row.ping_us:.0f} us",
            f"{row.ping_least_us:.0f} us",
            f"{row.to_a:.1f} MiB/s",
            f"{row.to_b:.1f} MiB/s",
            f"{row.frames_per_burst:.1f}" if row.frames_per_burst else "",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (heads, *cells)
    )
