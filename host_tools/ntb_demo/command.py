"""`bluebridge ntb demo`: boots a pair, shows its bridge at work, ends it."""

from __future__ import annotations

import argparse

from host_tools.lab import LabConfig, Pair
from host_tools.ntb_demo import clients
from host_tools.progress import Reporter

_WITHOUT_PERF = ("intel-gen1",)
"""With one window left, ntb_perf refuses (perf_setup_peer_mw wants one for each side)."""


def main(options: argparse.Namespace) -> int:
    """Show everything on a pair of its own; 0 when all of it was right, else `LabError`."""
    config = LabConfig(log=options.log, hca=False, vfio=False, kernel=True, ntb=options.model)
    with Pair(config, Reporter(quiet=options.quiet)) as pair:
        _show(pair, options.model)
        logs = pair.log_name
    _say("")
    _say(f"all of it was right; the log: bluebridge log {logs} --decode")
    return 0


def _show(pair: Pair, model: str) -> None:
    _title("the bridge and the DMA engine, as the guests see them")
    clients.link(pair, _say)
    _title("ping over ntb_netdev")
    clients.ping(pair, _say)
    _title("one packet on the buses of both guests")
    clients.one_packet(pair, _say)
    _title(f"{clients.TRANSFER_MIB} MiB by TCP over ntb_netdev")
    clients.transfer(pair, _say)
    clients.unload_network(pair)
    if model not in _WITHOUT_PERF:
        _title("ntb_perf, 64 MiB by the DMA engine")
        clients.perf(pair, _say)
    _title("doorbells and scratchpads, by ntb_tool")
    clients.tool(pair, _say)


def _title(text: str) -> None:
    _say(f"\n-- {text}")


def _say(text: str) -> None:
    print(text, flush=True)
