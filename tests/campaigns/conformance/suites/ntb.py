"""The kernel's clients of a non-transparent bridge, on each kind of bridge."""

from __future__ import annotations

from functools import partial

from bluebridge.host_tools.programs import ntb_clients as clients
from tests.campaigns.conformance.bridge import load, network, tool
from tests.campaigns.conformance.program import Program
from tests.campaigns.conformance.session import BRIDGES

SHARING = tuple(setup for model, setup in BRIDGES.items() if model.register_window)
"""Bridges whose driver can share one window between the registers and a client."""
BY_DMA, BY_PROCESSOR = "use_dma=1 total_order=26", "chunk_order=16 total_order=17"
"""64 MiB by the engine in each run of ntb_perf; 128 KiB by the processor: stores pile up."""


def programs() -> list[Program]:
    """Engine, small clients, the network, throughput; then what breaks things."""
    program = partial(Program, "ntb", setups=tuple(BRIDGES.values()))
    return [
        program("ioatdma: probe with its self-test", steps=load.self_test),
        program("dmatest, 1,000 iterations on a spare channel", steps=load.dmatest, short=True),
        program("ntb_tool", steps=tool.tool, short=True),
        program("ntb_tool, b2b_mw_share=1", steps=tool.shared, setups=SHARING),
        program("ntb_pingpong", steps=tool.pace, short=True),
        program("ntb_msi_test", steps=tool.interrupts, short=True),
        program("ntb_netdev, copies by the processor", steps=network.by_processor),
        program("ntb_netdev use_dma=1", steps=network.by_dma),
        program("ntb_netdev use_msi=1", steps=network.messages),
        program("ntb_perf use_dma=1, 100 runs", steps=partial(load.perf, BY_DMA)),
        program("ntb_perf, 100 runs", steps=partial(load.perf, BY_PROCESSOR)),
        *(
            program(f"50 times load and unload {each.name}", steps=partial(load.cycles, each))
            for each in clients.CYCLED
        ),
        program("50 times load and unload all drivers", steps=load.drivers),
        program("20 times a peer dies in traffic", steps=load.peer_losses),
    ]
