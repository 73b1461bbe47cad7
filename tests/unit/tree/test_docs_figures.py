"""Figures that pages state are those of the constants that make them so.

A row has the page, a phrase with `{}` for the figure, and the constant with its unit.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import pytest

from tests.models.house import HOME

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MS = 0.001


@dataclass(frozen=True)
class Quoted:
    """A page's phrase, and where its figure comes from: a constant's dotted name over a unit."""

    page: str
    phrase: str
    constant: str
    unit: float = 1

    def value(self) -> str:
        """Return the figure as a page writes it."""
        module, _, name = self.constant.rpartition(".")
        home = "" if module.startswith("tests.") else "bluebridge."
        found = getattr(importlib.import_module(home + module), name) / self.unit
        return f"{found:,g}" if found >= 10_000 else f"{found:g}"


ROWS = [
    Quoted("agent", "`AgentSilent` after {} s", "host_tools.agent.connection._SILENCE"),
    Quoted("analyzer", "keeps its newest {} MiB", "device.buslog.segments.TOTAL_BYTES", MIB),
    Quoted("analyzer", "segments of {} MiB", "device.buslog.segments.SEGMENT_BYTES", MIB),
    Quoted("analyzer", "every {} ms", "device.server.process.FLUSH_SECONDS", MS),
    Quoted("analyzer", "when there are {} KiB of them", "device.buslog.writer.BATCH_BYTES", KIB),
    Quoted("architecture", "with {} MiB unwritten", "device.buslog.segments.MOST_BYTES", MIB),
    Quoted("architecture", "more than {} MiB (`device", "device.rdma.pairs.costs.WHOLE_BYTES", MIB),
    Quoted(
        "architecture", "{} MiB, so that it takes", "device.rdma.pairs.costs.MOST_PART_BYTES", MIB
    ),
    Quoted("architecture", "{} ms is logged", "device.pci.loop.SLOW_SECONDS", MS),
    Quoted("benchmarks", "when there are {} KiB of them", "device.buslog.writer.BATCH_BYTES", KIB),
    Quoted("benchmarks", "or {} ms after the", "device.server.process.FLUSH_SECONDS", MS),
    Quoted("benchmarks", "the median of 9 rounds of {}", "tests.campaigns.bench.krping._DOORBELLS"),
    Quoted("benchmarks", "{} times each", "tests.campaigns.bench.rdma.ROUNDS"),
    Quoted("capture", "{} bytes of other messages", "device.fabric.capture.PAYLOAD_BYTES"),
    Quoted("capture", "{} of Ethernet frames", "device.fabric.capture.HEADER_BYTES"),
    Quoted("capture", "{} of accesses", "device.buslog.packing.WINDOW_CAPTURE"),
    Quoted("ethernet", "({} at most), the peer pauses", "device.rdma.ports.flow_control.MAX_HELD"),
    Quoted("ethernet", "bursts of {}", "device.ethernet.sender.BURST"),
    Quoted("ethernet", "up to {} KiB", "device.ethernet.sender.MAX_SEND", KIB),
    Quoted("ethernet", "{} queue pairs at most", "device.frames.rules.MAX_EQUAL_RULES"),
    Quoted("ethernet", "{} different masks", "device.frames.rules.MAX_MASKS"),
    Quoted("faults", "keeps at most {} of them", "device.fabric.faults.stage.MOST_KEPT"),
    Quoted("faults", "and {} MiB", "device.fabric.faults.stage.MOST_KEPT_BYTES", MIB),
    Quoted("hosts", "forgotten after {} s", "device.fabric.ownership.AGE_SECONDS"),
    Quoted("infiniband", "{} datagrams at most", "device.rdma.datagrams.sender.MAX_PIECES"),
    Quoted(
        "infiniband", "ACTIVE {} s after its link", "device.fabric.subnet.manager.SWEEP_SECONDS"
    ),
    Quoted(
        "infiniband", "reregistration {} s later", "device.fabric.subnet.manager.CONFIRM_SECONDS"
    ),
    Quoted("infiniband", "priority {}", "device.fabric.subnet.manager.PRIORITY"),
    Quoted("ntb", "{} s after that became true", "device.ntb.shape.TRAINING_SECONDS"),
    Quoted("ntb", "a channel does {} descriptors", "device.dma.engine.TURN_DESCRIPTORS"),
    Quoted("ntb", "or {} MiB, then the others", "device.dma.engine.TURN_BYTES", MIB),
    Quoted("ntb", "written within {} ms", "device.ntb.errata.WINDOW_SECONDS", MS),
    Quoted("ntrdma", "unanswered for {} s", "guest.ntrdma.engine.own_commands.COMMAND_SECONDS"),
    Quoted("ntrdma", "changed for {} s; then it", "guest.ntrdma.engine.port.SILENT_SECONDS"),
    Quoted("web", "a sample of {} events", "host_tools.web.timeline._SAMPLE"),
    Quoted("web", "{} parts, and say", "host_tools.web.timeline.PARTS"),
    Quoted("web", "The first {} activities", "host_tools.web.side_by_side.MOST"),
    Quoted("web", "for at most {} s at a time", "host_tools.web.book.SECONDS"),
    Quoted("web", "{} events at a time", "host_tools.web.words.PART"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.page}: {row.phrase}")
def test_a_page_states_the_constant(row: Quoted) -> None:
    text = " ".join((HOME / "docs" / f"{row.page}.md").read_text(encoding="utf-8").split())
    value = row.value()
    said = {row.phrase.format(each) for each in (value, f"{float(value.replace(',', '')):,.0f}")}
    assert any(each in text for each in said), row.phrase.format(value)
