"""Where the device server's time goes: its sampled stacks, sorted into stages of its work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.host_tools.lab.pair import Pair

PREFIX = "time."
"""Of the keys of figures that are rows of the page's table of stages."""

PREFIXES = {
    "messages of the bus": ("bluebridge.device.pyvfio_user", "bluebridge.device.pci.loop"),
    "doorbells": (
        "bluebridge.device.hca.registers.doorbells",
        "bluebridge.device.hca.registers.blueflame",
        "bluebridge.device.hca.device",
    ),
    "fetching and parsing work requests": (
        "bluebridge.device.hca.rings.send_queue",
        "bluebridge.device.hca.rings.receive_queue",
        "bluebridge.device.hca.rings.shared_receive_queues",
        "bluebridge.device.hca.rings.work_requests",
    ),
    "keys and translation": (
        "bluebridge.device.hca.memory.region",
        "bluebridge.device.hca.memory.scatter_gather",
    ),
    "requests, answers, retries": (
        "bluebridge.device.hca.connected.requester",
        "bluebridge.device.hca.connected.responder",
        "bluebridge.device.hca.connected.retry",
        "bluebridge.device.hca.queue_pairs",
        "bluebridge.device.hca.pairs",
        "bluebridge.device.hca.ports.port",
        "bluebridge.device.fabric",
    ),
    "copying, notes for the log": ("bluebridge.device.hca.memory.transfer",),
    "completion entries": (
        "bluebridge.device.hca.rings.completion_queues",
        "bluebridge.device.hca.rings.completions",
    ),
    "event entries": ("bluebridge.device.hca.rings.event_queues",),
    "interrupts": (
        "bluebridge.device.pci.endpoint.interrupt",
        "bluebridge.device.pyvfio_user.context.trigger",
    ),
    "frames: segments and checksums": (
        "bluebridge.device.hca.ethernet.sender.",
        "bluebridge.device.hca.ethernet.segmentation",
        "bluebridge.device.hca.ethernet.frame",
        "bluebridge.device.hca.ethernet.offloads",
    ),
    "frames: steering and filling rings": (
        "bluebridge.device.hca.ethernet.receiver",
        "bluebridge.device.hca.ethernet.receive_batch",
        "bluebridge.device.hca.ports.flow_control",
        "bluebridge.device.hca.ethernet.steering",
        "bluebridge.device.hca.ethernet.receive_scaling",
        "bluebridge.device.hca.ports.frame_counters",
    ),
    "bus log": ("bluebridge.device.buslog", "bluebridge.device.fabric.capture"),
}
"""Stages of the server's work, and how the full names of their functions begin."""
OTHER = "all else"
STAGES = (*PREFIXES, OTHER)
TOGETHER = "together"


@dataclass(frozen=True)
class Profile:
    """What the server did while something ran: seconds of processor time and shares of stages."""

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
    """The part of all samples in each stage, from lines of `bluebridge.device.profile`."""
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
