"""Where the device server's time goes: its sampled stacks, sorted into stages of its work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from host_tools.lab import Pair

PREFIX = "time."
"""Of the keys of figures that are rows of the page's table of stages."""

_STAGES = {
    "messages of the bus": ("device.pyvfio_user", "device.pci.loop"),
    "doorbells": ("device.hca.uar", "device.hca.blueflame", "device.hca.device"),
    "fetching and parsing work requests": (
        "device.hca.send_queue",
        "device.hca.receive_queue",
        "device.hca.srq",
        "device.hca.wqe",
    ),
    "keys and translation": ("device.hca.memory_region", "device.hca.local_memory"),
    "requests, answers, retries": (
        "device.hca.requester",
        "device.hca.responder",
        "device.hca.retry",
        "device.hca.qp",
        "device.hca.port",
        "device.fabric",
    ),
    "copying, notes for the log": ("device.hca.copy",),
    "completion entries": ("device.hca.cq", "device.hca.completion"),
    "event entries": ("device.hca.eq",),
    "interrupts": ("device.pci.endpoint.interrupt", "device.pyvfio_user.context.trigger"),
    "frames: segments and checksums": (
        "device.hca.ethernet.",
        "device.hca.segment",
        "device.hca.packet",
        "device.hca.offload",
    ),
    "frames: steering and filling rings": (
        "device.hca.ethernet_receive",
        "device.hca.receive_batch",
        "device.hca.flow_control",
        "device.hca.steering",
        "device.hca.rss",
        "device.hca.eth_counters",
    ),
    "bus log": ("device.buslog", "device.fabric.capture"),
}
OTHER = "all else"
STAGES = (*_STAGES, OTHER)
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
    """The part of all samples in each stage, from lines of `device.profile`."""
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
            for found, prefixes in _STAGES.items()
            for prefix in prefixes
            if name.startswith(prefix)
        )
        if best := max(matches, default=None):
            return best[1]
    return OTHER
