"""NTRDMA through the bridge: latencies beside the engine alone, bandwidth, stores by request."""

from __future__ import annotations

import json
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bluebridge.device.layout.ntb.models import GEN4
from bluebridge.guest.protocols.ntrdma.back_ends import BACK_END
from bluebridge.guest.protocols.ntrdma.perf import LATENCY_BYTES
from bluebridge.host_tools.analyzer.analysis import Transfer, transfers
from bluebridge.host_tools.analyzer.analysis.transfer import modelled
from bluebridge.host_tools.analyzer.model import load
from bluebridge.host_tools.analyzer.ntrdma.batches import batches
from bluebridge.host_tools.analyzer.ntrdma.counts import (
    Counts,
    operation,
    peer_counts,
    sender_counts,
)
from bluebridge.host_tools.campaigns.bench import bridge
from bluebridge.host_tools.campaigns.bench.figures import Figure, at_least, at_most, plain
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab import ntrdma
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.ntrdma.ntrdma_command import perf
from bluebridge.host_tools.progress import Progress

ROUNDS = 5
COUNT = 500
BANDWIDTH = "rc_rdma_write_bw"
ORIGINAL_US = {"rc_lat": 12.2, "rc_rdma_write_lat": 12.8, "rc_rdma_read_lat": 21.4}
"""Latency tests, and what the original reached on real machines."""
OPERATIONS = {"SEND": "rc_bw", "WRITE": BANDWIDTH, "READ": "rc_rdma_read_bw"}
"""Tests whose requests are counted in the log."""
PROFILE = "system-x"
LATENCY_GOAL, BANDWIDTH_GOAL = 400, 500
BATCHES = (1, 4, 16)
LOGGED = 64
"""Requests of each kind that are counted in the log."""
_ONCE = 8
"""Stores of a batch besides the data: entries, index, bell and interrupt, and so for the answer."""
_BOTH = 2
"""Each side writes an index and sends an interrupt."""


def figures(progress: Progress) -> list[Figure]:
    """Measure all figures of NTRDMA's section. Raises `LabError`, `LogError`."""
    with Pair(_config(None), progress) as pair:
        progress("NTRDMA: latencies and the DMA engine's ping-pong in turn, bandwidth")
        found = _speed(pair)
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder) / "logs"
        with Pair(_config(logs), progress) as pair:
            progress("NTRDMA: stores of requests in the log")
            _run_logged(pair)
        return [*found, *_logged(logs)]


def _config(logs: Path | None) -> LabConfig:
    base = LabConfig(bus_log=logs is not None, log=logs)
    return ntrdma.config(base, BACK_END, GEN4.name)


def _measured(pair: Pair, *words: str) -> dict[str, dict[str, float]]:
    said = perf(pair, BACK_END, [*words, "--json"])
    found: dict[str, dict[str, float]] = json.loads(said)
    return found


# -- time ---------------------------------------------------------------------------------------


def _speed(pair: Pair) -> list[Figure]:
    """Medians over some rounds, in each of which all are measured."""
    engine: list[float] = []
    rounds: list[dict[str, dict[str, float]]] = []
    for _ in range(ROUNDS):
        engine.append(bridge.game(pair)["dma"]["p50"])
        rounds.append(_measured(pair, *ORIGINAL_US, "--count", str(COUNT)))
    rates = [_measured(pair, BANDWIDTH)[BANDWIDTH]["bytes_per_second"] for _ in range(ROUNDS)]
    alone = "64 bytes through the window by DMA alone, half of a ping-pong, p50, in the same runs"
    found = [plain("ntrdma_engine_p50", alone, statistics.median(engine), "us")]
    for test, original in ORIGINAL_US.items():
        title = f"NTRDMA, {test}, {LATENCY_BYTES} bytes, p50 (the original: {original:g} us)"
        value = statistics.median(each[test]["p50_us"] for each in rounds)
        figure = plain(f"ntrdma_{test}", title, value, "us")
        found.append(at_most(figure, LATENCY_GOAL) if "write" in test else figure)
    rate = statistics.median(rates) / 1e6
    title = f"NTRDMA, {BANDWIDTH}, 1 MiB"
    return [*found, at_least(plain("ntrdma_write_bw", title, rate, "MB/s"), BANDWIDTH_GOAL)]


# -- counts -------------------------------------------------------------------------------------


def _run_logged(pair: Pair) -> None:
    once = ("--size", str(LATENCY_BYTES), "--count", str(LOGGED))
    _measured(pair, *OPERATIONS.values(), *once, "--batch", "1")
    for size in BATCHES[1:]:
        _measured(pair, BANDWIDTH, *once, "--batch", str(size))


@dataclass(frozen=True)
class Kind:
    """One kind of store that is counted for a batch of requests."""

    key: str
    title: str
    least: int
    """Times that the protocol needs besides the data."""
    data: bool = False
    """Whether the data count."""

    def figure(self, counts: list[Counts], size: int) -> Figure:
        """The median batch's stores for each request, beside the least there can be."""
        value = statistics.median(getattr(each, self.key) for each in counts) / size
        title = f"NTRDMA, {size} writes at a time: {self.title} per write"
        figure = plain(f"ntrdma_{self.key}_{size}", title, value, "")
        return at_most(figure, (self.least + self.data * size) / size)


KINDS = (
    Kind("descriptors", "DMA descriptors of both sides", _ONCE, data=True),
    Kind("indices", "index writes", _BOTH),
    Kind("interrupts", "interrupt messages", _BOTH),
)


def _counts(logs: Path) -> dict[tuple[str, int], list[Counts]]:
    """The stores of both sides for each batch, by operation and size."""
    found: dict[tuple[str, int], list[Counts]] = {}
    for batch in batches(logs):
        if all(each.entry and each.entry.length == LATENCY_BYTES for each in batch.works):
            counts = sender_counts(batch) + peer_counts(batch)
            found.setdefault((operation(batch), len(batch.works)), []).append(counts)
    return found


def _logged(logs: Path) -> list[Figure]:
    """What is in the log. Raises `LabError` when requests are missing."""
    counts = _counts(logs)
    missing = {("WRITE", size) for size in BATCHES} | {(name, 1) for name in OPERATIONS}
    if missing := missing - set(counts):
        raise LabError(f"the log has none of these batches: {sorted(missing)}")
    found = [kind.figure(counts["WRITE", size], size) for size in BATCHES for kind in KINDS]
    crossed = {name: statistics.median(x.stores for x in counts[name, 1]) for name in OPERATIONS}
    for name, single in _singles(logs).items():
        found += _costs(name, single, crossed[name])
    title = "NTRDMA: stores that cross the bridge for a read, more than for a write"
    more = plain("ntrdma_read_more", title, crossed["READ"] - crossed["WRITE"], "")
    return [*found, at_most(more, 0)]


def _costs(name: str, single: list[Transfer], crossed: float) -> list[Figure]:
    """What one request crosses the bridge and the buses for, and how long real ones would take."""
    model = load(PROFILE)
    title, key = f"NTRDMA, one {name} of {LATENCY_BYTES} bytes", f"ntrdma_{name.lower()}"
    bus = statistics.median(len(each.on_bus()) for each in single)
    modelled_us = statistics.median(modelled(each, model) or 0.0 for each in single)
    return [
        plain(f"{key}_crossings", f"{title}: stores that cross the bridge", crossed, ""),
        plain(f"{key}_transactions", f"{title}: transactions on both buses", bus, ""),
        plain(
            f"{key}_modelled", f"{title}, with its answer: modelled ({PROFILE})", modelled_us, "us"
        ),
    ]


def _singles(logs: Path) -> dict[str, list[Transfer]]:
    """Requests by operation that share no transaction with another."""
    found: dict[str, list[Transfer]] = {name: [] for name in OPERATIONS}
    for transfer in transfers(logs):
        shared = any(each.repeated for each in transfer.transactions)
        if transfer.length == LATENCY_BYTES and transfer.status == "OK" and not shared:
            found.get(transfer.opcode, []).append(transfer)
    return found
