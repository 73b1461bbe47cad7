"""The kinds of objects that `bluebridge show` knows."""

from __future__ import annotations

from bluebridge.host_tools.show.ports import DMA, ECN, NTB, PORTS
from bluebridge.host_tools.show.queues import CQ, EQ, MR, QP, SRQ
from bluebridge.host_tools.show.registers import CONFIG, REGS

KINDS = {kind.name: kind for kind in (QP, CQ, SRQ, EQ, ECN, MR, PORTS, REGS, CONFIG, NTB, DMA)}
"""The kinds of objects by their words on the command line."""
