"""`python -m host_tools.bench`: measure, print, write JSON and docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from host_tools.bench import doorbell, measure, page
from host_tools.bench import figures as goals
from host_tools.bench.figures import Figure
from host_tools.errors import LabError
from host_tools.lab import LabConfig, Pair
from host_tools.progress import Progress, Reporter

LONG_ITERATIONS = 100_000


def main() -> int:
    """Exit status 0 when everything was measured, whether or not the goals were met."""
    options = _parser().parse_args()
    progress = Reporter()
    try:
        machine, figures = _measure(options.long, progress)
    except LabError as error:
        print(error.transcript, file=sys.stderr)
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(page.table(figures))
    print(f"written: {page.write_json(machine, figures)}")
    if not any(figure.key == "server_growth" for figure in figures) and (
        earlier := page.remembered("server_growth")
    ):
        figures.append(earlier)
    page.write_page(machine, figures)
    print(f"written: {page.PAGE}")
    return 0


def _measure(long: bool, progress: Progress) -> tuple[page.Machine, list[Figure]]:
    figures: list[Figure] = []
    with Pair(LabConfig(), progress) as pair:
        machine = page.Machine.here(pair.accelerator)
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
    if long:
        with Pair(LabConfig(), progress) as pair:
            progress(f"{LONG_ITERATIONS:,} krping iterations")
            first, last = measure.long_run(pair, LONG_ITERATIONS)
            figures.append(goals.memory_growth(LONG_ITERATIONS, first, last))
    return machine, figures


def _doorbells(library: Path, guests: float) -> list[Figure]:
    """Server CPU per doorbell: alone with and without the bus log, then as the guests saw it."""
    with_log, without = (doorbell.cost_us(library, logged) for logged in (True, False))
    return [
        goals.doorbell_cost(with_log),
        goals.plain("doorbell_cpu_no_log", "the same with the bus log off", without, "us"),
        goals.doorbell_cost_in_ping_pong(guests),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m host_tools.bench", description=__doc__)
    parser.add_argument(
        "--long", action="store_true", help="also 100,000 iterations with the memory watched"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
