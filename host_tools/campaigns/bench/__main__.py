"""Measure, print, write JSON and docs/benchmarks.md."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from bluebridge.host_tools.campaigns.bench import (
    bridge,
    doorbell,
    dpdk,
    log,
    measure,
    ntrdma,
    ntrdma_network,
    page,
    rdma,
    rtrs,
    startup,
)
from bluebridge.host_tools.campaigns.bench import figures as goals
from bluebridge.host_tools.campaigns.bench.figures import Figure
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.host_description import HostDescription
from bluebridge.host_tools.lab.artefacts import ensure_artefacts
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.progress import Progress, Reporter


def main() -> int:
    """Exit status 0 when everything was measured, whether or not the goals were met."""
    parser = _parser()
    options = parser.parse_args()
    if unknown := set(options.sections) - set(_SECTIONS):
        parser.error(f"there is no section {', '.join(unknown)}; there are {', '.join(_SECTIONS)}")
    progress = Reporter()
    figures: list[Figure] = []
    try:
        for name in options.sections or _SECTIONS:
            figures += _SECTIONS[name](progress)
        machine = HostDescription.here(ensure_artefacts(progress).emulator.accelerator)
    except LabError as error:
        print(error.transcript, file=sys.stderr)
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(page.table(figures))
    print(f"written: {page.write_json(machine, figures)}")
    page.write_page(machine, page.completed(figures))
    print(f"written: {page.PAGE}")
    return 0


def _hca(progress: Progress) -> list[Figure]:
    """krping between guests, and what the device spends on it."""
    figures: list[Figure] = []
    with Pair(LabConfig(), progress) as pair:
        progress("krping, 64 bytes")
        figures.append(goals.krping_median(measure.krping_median_ms(pair)))
        progress("RDMA WRITE bandwidth")
        figures.append(goals.write_bandwidth(measure.write_bandwidth_gib(pair)))
        progress("RDMA WRITE ping-pong")
        ping_pong = measure.ping_pong(pair)
        figures.append(goals.write_latency(ping_pong.half_us))
        library = pair.library
        progress("device CPU per doorbell")
    figures += _doorbells(library, guests=ping_pong.doorbell_us)
    return figures


def _up(progress: Progress) -> list[Figure]:
    """How soon a lab is ready."""
    startup.up_seconds(1)  # makes the snapshot if need be
    progress("bluebridge up, restored")
    warm = statistics.median(startup.up_seconds(15))
    progress("bluebridge up --cold")
    cold = statistics.median(startup.up_seconds(5, "--cold"))
    return [goals.up_warm(warm), goals.plain("up_cold", "the same with --cold", cold, "s")]


def _rdma(progress: Progress) -> list[Figure]:
    """The kernel's drivers against Soft-RoCE and virtio-net."""
    return rdma.figures(progress)


def _log(progress: Progress) -> list[Figure]:
    """What the bus log takes and costs."""
    return log.figures(progress)


def _ntb(progress: Progress) -> list[Figure]:
    """The bridge and its DMA engine, by the kernel's drivers and by the guests' own."""
    return bridge.figures(progress)


def _ntrdma(progress: Progress) -> list[Figure]:
    """NTRDMA by the guests' own drivers: time, and stores for each request."""
    return ntrdma.figures(progress)


def _ntrdma_network(progress: Progress) -> list[Figure]:
    """Network interfaces over NTRDMA and ntb_netdev."""
    return ntrdma_network.figures(progress)


def _rtrs(progress: Progress) -> list[Figure]:
    """RNBD by the kernel's modules, and how soon it fails over."""
    return rtrs.figures(progress)


def _dpdk(progress: Progress) -> list[Figure]:
    """Frames per second of DPDK's testpmd, on the HCA and on virtio-net."""
    return dpdk.figures(progress)


def _doorbells(library: Path, guests: float) -> list[Figure]:
    """Server CPU per doorbell: alone with and without the bus log, then as the guests saw it."""
    with_log, without = (doorbell.cost_us(library, logged) for logged in (True, False))
    return [
        goals.doorbell_cost(with_log),
        goals.plain("doorbell_cpu_no_log", "the same with the bus log off", without, "us"),
        goals.doorbell_cost_in_ping_pong(guests),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bluebridge.host_tools.campaigns.bench", description=__doc__
    )
    names = ", ".join(_SECTIONS)
    parser.add_argument("sections", nargs="*", help=f"what to measure: {names} (default: all)")
    return parser


_SECTIONS: dict[str, Callable[[Progress], list[Figure]]] = {
    "up": _up,
    "hca": _hca,
    "rdma": _rdma,
    "log": _log,
    "ntb": _ntb,
    "ntrdma": _ntrdma,
    "ntrdma-network": _ntrdma_network,
    "rtrs": _rtrs,
    "dpdk": _dpdk,
}


if __name__ == "__main__":
    sys.exit(main())
