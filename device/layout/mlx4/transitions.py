"""The states between which commands move a queue pair, and those it enters by itself.

Rules: InfiniBand vol. 1, 10.3.1; Linux `mlx4/qp.c: mlx4_qp_modify`.
"""

from __future__ import annotations

from typing import NamedTuple

from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import QpState


class Transition(NamedTuple):
    """The states in which a command is allowed, and the one that it leads to."""

    sources: tuple[QpState, ...]
    target: QpState


_RST, _INIT, _RTR, _RTS = QpState.RST, QpState.INIT, QpState.RTR, QpState.RTS
_SQD, _SQER, _ERR = QpState.SQD, QpState.SQER, QpState.ERR
OWNED = (_INIT, _RTR, _RTS, _SQD, _SQER, _ERR)
"""States in which hardware owns a queue pair."""

TRANSITIONS: dict[int, Transition] = {
    Opcode.RST2INIT_QP: Transition((_RST,), _INIT),
    Opcode.INIT2INIT_QP: Transition((_INIT,), _INIT),
    Opcode.INIT2RTR_QP: Transition((_INIT,), _RTR),
    Opcode.RTR2RTS_QP: Transition((_RTR,), _RTS),
    Opcode.RTS2RTS_QP: Transition((_RTS,), _RTS),
    Opcode.SQERR2RTS_QP: Transition((_SQER,), _RTS),
    Opcode.RTS2SQD_QP: Transition((_RTS, _SQD), _SQD),
    Opcode.SQD2SQD_QP: Transition((_SQD,), _SQD),
    Opcode.SQD2RTS_QP: Transition((_SQD,), _RTS),
    Opcode.TOERR_QP: Transition(OWNED, _ERR),
    Opcode.TORST_QP: Transition((_RST, *OWNED), _RST),
}
"""Transitions by the opcode of the command that asks for them."""

FAILURES = ((_RTS, _SQER), (_SQD, _SQER), *((state, _ERR) for state in OWNED[:-1]))
"""Transitions that hardware makes when work fails; to SQER only with unreliable services."""
