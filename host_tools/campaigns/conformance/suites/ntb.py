"""The kernel's clients of a non-transparent bridge, on each kind of bridge."""

from __future__ import annotations

from bluebridge.host_tools.campaigns.conformance.bridge import (
    engine,
    load_cycles,
    network,
    perf,
    tool,
)
from bluebridge.host_tools.campaigns.conformance.program import Program, Steps
from bluebridge.host_tools.campaigns.conformance.setups import BRIDGES, Setup
from bluebridge.host_tools.programs import ntb_clients as clients

ALL = tuple(BRIDGES.values())
SHARING = tuple(setup for model, setup in BRIDGES.items() if model.register_window)
"""Bridges whose driver can share one window between the registers and a client."""


def programs() -> list[Program]:
    """Engine, small clients, the network, throughput; then what breaks things."""
    return [
        _program("ioatdma: probe with its self-test", engine.self_test),
        _program("dmatest, 1,000 iterations on a spare channel", engine.dmatest),
        _program("ntb_tool", tool.tool, short=True),
        _program("ntb_tool, b2b_mw_share=1", tool.shared, setups=SHARING),
        _program("ntb_pingpong", tool.pace, short=True),
        _program("ntb_msi_test", tool.interrupts, short=True),
        _program("ntb_netdev use_dma=1: addresses in the bus log", network.addresses_in_the_log),
        _program("ntb_netdev, copies by the processor", network.by_processor),
        _program("ntb_netdev use_dma=1", network.by_dma),
        _program("ntb_netdev use_msi=1", network.messages),
        _program("ntb_perf use_dma=1, 100 runs", perf.by_dma),
        _program("ntb_perf, 100 runs", perf.by_processor),
        *(
            _program(f"50 times load and unload {client.name}", load_cycles.cycled(client))
            for client in clients.CYCLED
        ),
        _program("50 times load and unload all drivers", load_cycles.drivers),
        _program("20 times a peer dies in traffic", load_cycles.peer_losses),
    ]


def _program(
    name: str, steps: Steps, *, short: bool = False, setups: tuple[Setup, ...] = ALL
) -> Program:
    return Program("ntb", name, steps=steps, short=short, setups=setups)
