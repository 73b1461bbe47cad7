"""The options of `bluebridge show`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

KINDS = {
    "qp": "queue pairs",
    "cq": "completion queues",
    "srq": "shared receive queues",
    "eq": "event queues",
    "ecn": "congestion of queue pairs on a wire of packets: marks, reports, rate in Mb/s",
    "mr": "memory regions and windows, memory keys of a ConnectX-5",
    "sq": "send queues of a ConnectX-5",
    "rq": "its receive queues",
    "tir": "its interfaces of receive: who gets the frames that a flow table sends there",
    "rqt": "its tables of receive queues, over which frames are spread",
    "ft": "its flow tables",
    "objects": "how many objects of each kind it has",
    "ports": "ports: link, cable, addresses, counters",
    "regs": "registers of BAR0, by name",
    "config": "config space, as `lspci -vv` names it",
    "ntb": "a bridge: windows, doorbells, scratchpads",
    "dma": "channels of a DMA engine",
}
"""The words for the kinds that can be shown, with their meanings."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Show what the devices of a guest hold now. The device server is asked, so it does not\n"
        "matter what the guest's driver does, and nothing in the guest or its devices changes.\n\n"
        + "\n".join(f"  {name:7} {text}" for name, text in KINDS.items())
    )
    parser.add_argument(
        "name", metavar="GUEST", help="all devices of a guest (a), or one (a.1, a.ntb4, a.dma)"
    )
    parser.add_argument("what", metavar="KIND", choices=tuple(KINDS), help=", ".join(KINDS))
    parser.add_argument(
        "number", nargs="?", metavar="NUMBER",
        help="one of them: QPN, CQN, SRQN, EQN, lkey or rkey, port, channel, offset of a register",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object, with every field")
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="keep the JSON object there, for --since FILE"
    )
    parser.add_argument(
        "--since", type=_moment, metavar="MOMENT",
        help="show only what changed since --save wrote FILE, or what changes in a time such as 2s",
    )  # fmt: skip


def _moment(text: str) -> Path | float:
    """Parse seconds such as `2s` or `0.5s`, else the path of a file."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)s", text)
    return float(match[1]) if match else Path(text)
