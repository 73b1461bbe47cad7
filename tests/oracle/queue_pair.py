"""A queue pair and its states (InfiniBand vol. 1, 10.3.1)."""

from __future__ import annotations

from collections.abc import Mapping

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.eqe import EventType
from tests.oracle.requester import Requester

TRANSITIONS = {
    Opcode.INIT2INIT_QP: (("INIT",), "INIT"),
    Opcode.INIT2RTR_QP: (("INIT",), "RTR"),
    Opcode.RTR2RTS_QP: (("RTR",), "RTS"),
    Opcode.RTS2RTS_QP: (("RTS",), "RTS"),
    Opcode.SQERR2RTS_QP: (("SQER",), "RTS"),
    Opcode.RTS2SQD_QP: (("RTS", "SQD"), "SQD"),
    Opcode.SQD2SQD_QP: (("SQD",), "SQD"),
    Opcode.SQD2RTS_QP: (("SQD",), "RTS"),
    Opcode.TOERR_QP: (("INIT", "RTR", "RTS", "SQD", "SQER", "ERR"), "ERR"),
}
"""Where a command may start, and where it ends."""


class QueuePair(Requester):
    """A queue pair of one side."""

    def transits(self, opcode: Opcode, values: Mapping[str, int], *, drains: bool = False) -> bool:
        """Software asks for a transition, perhaps for an event in SQD; return whether it may be."""
        sources, target = TRANSITIONS[opcode]
        if self.state not in sources:
            return False
        for name, value in values.items():
            setattr(self, name, value)
        if target == "ERR":
            self.enter_error()
        else:
            self.state = target
        if target == "SQD":
            self.drains = drains and bool(self.pending)
            if drains and not self.pending:
                self.side.events.add((EventType.SQ_DRAINED, self.qpn), "10.3.1 SQD")
        self.advance()
        return True
