"""Completion statuses and events of the verbs, each with the faults that produce it, or why none.

Which of them a driver of a ConnectX-3 can report: Linux `infiniband/hw/mlx4/cq.c:
mlx4_ib_handle_error_cqe`, `mlx4/eq.c: mlx4_eq_int`, `ib/mad.c: handle_port_mgmt_change_event`.
"""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.layout.mlx4.faults import FAULTS
from bluebridge.host_tools.atlas.outcome import EVENTS, WC, Row

_RD = "of reliable datagrams (RD), which no adapter and no driver has"
IMPOSSIBLE = {
    "IBV_WC_LOC_EEC_OP_ERR": _RD,
    "IBV_WC_LOC_RDD_VIOL_ERR": _RD,
    "IBV_WC_REM_INV_RD_REQ_ERR": _RD,
    "IBV_WC_INV_EECN_ERR": _RD,
    "IBV_WC_INV_EEC_STATE_ERR": _RD,
    "IBV_WC_FATAL_ERR": "the ConnectX-3 has no syndrome for it; libmlx4 never reports it",
    "IBV_WC_RESP_TIMEOUT_ERR": "the kernel's MAD layer makes it up; no adapter reports it",
    "IBV_EVENT_SM_CHANGE": "mlx4_ib never dispatches it",
    "IBV_EVENT_WQ_FATAL": "of work queues of mlx5",
}
"""Statuses and events that this adapter cannot produce, with the reason."""
NAMES = (*(f"IBV_WC_{name}" for name in WC[1:]), *(f"IBV_EVENT_{name}" for name in EVENTS))


def produced_by(name: str) -> list[str]:
    """Return the names of the faults that lead to a status or an event by themselves."""
    short = name.removeprefix("IBV_WC_")
    return [
        fault.name for fault in FAULTS
        if name in fault.seen.replace(",", " ").replace(";", " ").split()
        or (name != short and short in fault.seen.replace(";", " ").replace(",", " ").split())
    ]  # fmt: skip


def lines(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Return name, faults or reason, and the programs that reported it, of all."""
    found = []
    for name in NAMES:
        word = name.replace("IBV_WC_", "wc ").replace("IBV_EVENT_", "event ")
        programs = dict.fromkeys(row.program for row in rows if word in row.seen.split(", "))
        how = ", ".join(f"`{fault}`" for fault in produced_by(name))
        reason = f"impossible: {IMPOSSIBLE[name]}" if name in IMPOSSIBLE else how
        found.append((name, reason, ", ".join(programs) or "-"))
    return found
