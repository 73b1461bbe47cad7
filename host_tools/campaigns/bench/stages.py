"""The stages of the device server's work, and the share of its sampled stacks in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.host_tools.lab.pair import Pair

PREFIX = "time."
"""The prefix of keys of figures that are rows of the page's table of stages."""

PREFIXES = {
    "messages of the bus": ("bluebridge.device.pyvfio_user", "bluebridge.device.pci.loop"),
    "doorbells": (
        "bluebridge.device.mlx4.registers.doorbells",
        "bluebridge.device.mlx4.registers.blueflame",
        "bluebridge.device.mlx4.device",
    ),
    "fetching and parsing work requests": (
        "bluebridge.device.mlx4.rings.send_queue",
        "bluebridge.device.mlx4.rings.receive_queue",
        "bluebridge.device.mlx4.rings.shared_receive_queues",
        "bluebridge.device.mlx4.rings.work_requests",
        "bluebridge.device.rdma.work",
    ),
    "keys and translation": (
        "bluebridge.device.rdma.memory.region",
        "bluebridge.device.rdma.memory.scatter_gather",
    ),
    "requests, answers, retries": (
        "bluebridge.device.rdma.connected.requester",
        "bluebridge.device.rdma.connected.responder",
        "bluebridge.device.rdma.connected.retry",
        "bluebridge.device.rdma.queue_pairs",
        "bluebridge.device.rdma.pairs",
        "bluebridge.device.rdma.ports.port",
        "bluebridge.device.fabric",
    ),
    "copying, notes for the log": ("bluebridge.device.rdma.memory.transfer",),
    "completion entries": (
        "bluebridge.device.mlx4.rings.completion_queues",
        "bluebridge.device.mlx4.rings.completions",
    ),
    "event entries": ("bluebridge.device.mlx4.rings.event_queues",),
    "interrupts": (
        "bluebridge.device.pci.endpoint.interrupt",
        "bluebridge.device.pyvfio_user.context.trigger",
    ),
    "frames: segments and checksums": (
        "bluebridge.device.ethernet.sender.",
        "bluebridge.device.ethernet.frames.segmentation",
        "bluebridge.device.ethernet.frames.frame",
        "bluebridge.device.ethernet.frames.offloads",
    ),
    "frames: steering and filling rings": (
        "bluebridge.device.ethernet.receiver",
        "bluebridge.device.ethernet.receive_batch",
        "bluebridge.device.rdma.ports.flow_control",
        "bluebridge.device.ethernet.steering",
        "bluebridge.device.ethernet.frames.receive_scaling",
        "bluebridge.device.rdma.ports.frame_counters",
    ),
    "bus log": ("bluebridge.device.buslog", "bluebridge.device.fabric.capture"),
}
"""Stages of the server's work, and how the full names of their functions begin."""
OTHER = "all else"
STAGES = (*PREFIXES, OTHER)
TOGETHER = "together"


@dataclass(frozen=True)
class Profile:
    """The work of the server while something ran: seconds of processor time, shares of stages."""

    seconds: float
    shares: dict[str, float]


def profile(pair: Pair, action: Callable[[], object]) -> Profile:
    """Watch the server during `action`. The samples themselves cost it about a percent."""
    file = pair.folder / "stacks"
    pair.server.tell("profile start")
    before = pair.server.cpu_seconds()
    action()
    seconds = pair.server.cpu_seconds() - before
    pair.server.tell(f"profile stop {file}")
    return Profile(seconds, shares(file.read_text()))


def shares(stacks: str) -> dict[str, float]:
    """The part of all samples in each stage, from lines of `bluebridge.device.server.profile`."""
    counts = dict.fromkeys(STAGES, 0)
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        counts[stage(stack.split(";"))] += int(count)
    total = sum(counts.values()) or 1
    return {name: count / total for name, count in counts.items()}


def stage(stack: list[str]) -> str:
    """The stage of a stack: that of the innermost function that has one.

    What serves them all, memory and rings, counts for its callers.
    """
    for name in reversed(stack):
        matches = (
            (len(prefix), found)
            for found, prefixes in PREFIXES.items()
            for prefix in prefixes
            if name.startswith(prefix)
        )
        if best := max(matches, default=None):
            return best[1]
    return OTHER
