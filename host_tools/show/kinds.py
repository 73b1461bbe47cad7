"""The kinds of objects that `bluebridge show` knows."""

from __future__ import annotations

from bluebridge.host_tools.show.bridges import DMA, NTB
from bluebridge.host_tools.show.config_space import CONFIG
from bluebridge.host_tools.show.congestion import ECN
from bluebridge.host_tools.show.ports import PORTS
from bluebridge.host_tools.show.queues import CQ, EQ, QP, SRQ
from bluebridge.host_tools.show.regions import MR
from bluebridge.host_tools.show.registers import REGS

KINDS = {kind.name: kind for kind in (QP, CQ, SRQ, EQ, ECN, MR, PORTS, REGS, CONFIG, NTB, DMA)}
"""The kinds of objects by their words on the command line."""
