"""`bluebridge ntb demo`: boots a pair, shows its bridge at work, ends it."""

from __future__ import annotations

import argparse

from bluebridge.device.server.options import BridgeOptions
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.ntb_demo import steps
from bluebridge.host_tools.programs.ntb_guests import Guests
from bluebridge.host_tools.progress import Reporter


def main(options: argparse.Namespace) -> int:
    """Show all steps on a pair of its own; return 0. Raises `LabError` when a step goes wrong."""
    bridge = BridgeOptions(options.model)
    config = LabConfig(log=options.log, hca=False, vfio=False, kernel=True, bridge=bridge)
    with Pair(config, Reporter(quiet=options.quiet)) as pair:
        _show(Guests(pair, bridge.model))
        logs = pair.log_name
    _say("")
    _say(f"all of it was right; the log: bluebridge log {logs} --decode")
    return 0


def _show(guests: Guests) -> None:
    _title("the bridge and the DMA engine, as the guests see them")
    steps.link(guests, _say)
    _title("ping over ntb_netdev")
    steps.ping(guests, _say)
    _title("one packet on the buses of both guests")
    steps.one_packet(guests, _say)
    _title(f"{steps.TRANSFER_MIB} MiB by TCP over ntb_netdev")
    steps.transfer(guests, _say)
    steps.unload_network(guests)
    if guests.model in steps.PERF_CLIENT.models:
        _title("ntb_perf, 64 MiB by the DMA engine")
        steps.perf(guests, _say)
    _title("doorbells and scratchpads, by ntb_tool")
    steps.tool(guests, _say)


def _title(text: str) -> None:
    _say(f"\n-- {text}")


def _say(text: str) -> None:
    print(text, flush=True)
